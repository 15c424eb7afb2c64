"""Curves of numbers in log lines, for %plot."""
