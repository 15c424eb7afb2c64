"""Packages that a cell asks for: its requirements, and the calls of pip."""
