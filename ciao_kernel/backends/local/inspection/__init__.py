"""Looking into the processes of a local job: stacks, use, and prompts."""
