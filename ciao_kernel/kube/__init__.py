"""Kubernetes client: credentials, requests, watches, log streams.

All communication with the API server is in this package.
"""
