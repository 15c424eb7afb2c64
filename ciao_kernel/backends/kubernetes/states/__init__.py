"""Where a job and its replicas stand, as their objects and events tell, and why they wait."""
