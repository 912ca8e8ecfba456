"""Run the examples of README and docs as tests, beside those of the docstrings."""

from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

import pytest
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=["*.md"],
).pytest()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the examples of one page on one worker: later ones use what earlier ones defined."""
    if isinstance(item, SybilItem):
        item.add_marker(pytest.mark.xdist_group(str(item.path)))
