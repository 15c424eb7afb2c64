"""What can go wrong while the cluster is raised, used or lowered."""


class ClusterError(Exception):
    """One sentence that says what is wrong, and one that says how to mend it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n  {hint}" if hint else message)
