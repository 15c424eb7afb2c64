"""Runs one cell from its text to its end, on any backend."""
