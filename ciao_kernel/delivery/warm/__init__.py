"""The programs of warm replicas (``%warm``), their requests, and the marks in their logs."""

FOLDER = ".ciao-warm"
"""Folder of the agents' own files, below the root of their runs; the agent has it too."""
