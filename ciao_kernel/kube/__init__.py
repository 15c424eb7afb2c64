"""The one place that talks to Kubernetes: credentials, requests, watches, log streams."""
