"""Packages that a cell asks for: what is asked, and how pip is run."""
