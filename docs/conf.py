"""Settings of Sphinx for the documentation site; docs/make.py runs it."""

project = "ciao"
copyright = "the ciao authors, Apache-2.0"
extensions = ["myst_parser"]
myst_heading_anchors = 3  # links such as admin.md#rights, as code hosts have them
html_theme = "furo"  # dark and light, and nothing of a page is fetched from another host
html_title = "ciao"
html_favicon = "../kernelspec/logo-svg.svg"
html_logo = "../kernelspec/logo-64x64.png"
smartquotes = False  # `--` is an option, wherever it stands
html_copy_source = False
html_show_sphinx = False
