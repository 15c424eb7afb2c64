"""The life of a job's objects: created, suspended, created again for a next try, deleted."""
