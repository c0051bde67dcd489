"""The documentation site: these pages and the reference of the public API, built by `make docs` into `build/docs`."""

import dynadiag

project = "dynadiag"
author = "The dynadiag developers"
release = dynadiag.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = f"dynadiag {release}"
html_show_copyright = False
html_static_path = ["site"]
html_css_files = ["wide.css"]  # a report has 100 columns
myst_heading_anchors = 4
autodoc_typehints = "description"
autodoc_member_order = "bysource"
# Pages link to files of the repository, which are not pages; the picture of the imports is for a viewer of Mermaid.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]
exclude_patterns = ["README.md", "screens"]  # `index.rst` includes the list of the pages
