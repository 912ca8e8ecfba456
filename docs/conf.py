"""Settings of the documentation site."""

import scalinglimits

project = "scalinglimits"
author = "The scalinglimits authors"
release = version = scalinglimits.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
autodoc_typehints = "signature"
napoleon_use_ivar = True  # or each attribute is described twice
autodoc_member_order = "bysource"
default_role = "code"
html_theme = "furo"
html_title = f"scalinglimits {release}"
exclude_patterns = ["_build"]
# Formulas of long docstrings and pages refer to each other by text.
suppress_warnings = ["myst.xref_missing"]
