"""Training frameworks, one file each; nothing here does I/O."""
