"""Backends, which run jobs: one folder or file for each."""
