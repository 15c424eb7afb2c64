"""The language of a job cell's header: its table, its reader, and the help for it."""
