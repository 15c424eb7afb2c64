"""A cell becomes a job: the choice of its API, all checks, the dry run, the submission."""
