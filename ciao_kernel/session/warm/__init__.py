"""Warm replicas (``%warm``): they wait for the next run of a cell instead of ending with it."""
