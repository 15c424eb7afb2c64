"""Benchmarks: every figure is a ratio against a named peer, measured in the same run.

``python -m benchmarks`` runs them all and prints a table; ``--write`` keeps it in results.md.
"""
