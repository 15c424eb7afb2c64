"""Requests to a cluster that all rooms share: where it is, what a user may do there, other pods."""
