"""A job's share of this machine: ports, GPUs, and a network of its own."""
