"""What warm replicas (``%warm``) run, how programs are sent to them, and what their logs say."""

FOLDER = ".ciao-warm"
"""Folder of the agents' own files, below the root of their runs; the agent has it too."""
