"""Follows a job: its states, the logs of its replicas, and the pods that it loses."""
