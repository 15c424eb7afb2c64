"""Where jobs run: one folder or file a backend."""
