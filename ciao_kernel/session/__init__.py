"""Runs one cell: from its text to its end, wherever it runs."""
