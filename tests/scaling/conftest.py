"""Make the models of these tests importable; collect what the installed packages allow."""

import sys
from importlib.util import find_spec
from pathlib import Path

collect_ignore = ["distributed_worker.py"]
if find_spec("transformers") is None:
    collect_ignore.append("test_transformers.py")

sys.path.insert(0, str(Path(__file__).parent))
