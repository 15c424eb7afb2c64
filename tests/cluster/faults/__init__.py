"""Harm on demand, and users, policies and registries as companies have them. For tests."""
