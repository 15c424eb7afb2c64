"""Protocol of displays, which show a followed job."""

from __future__ import annotations

from typing import Protocol

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import Event, Job


class Display(Protocol):
    """Output of a session. There are two displays: notebook and terminal."""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """Prepare to show a job; ``follow`` names the roles and replicas to show."""

    def show(self, event: Event) -> None:
        """Accept one event and return immediately; the output is written slightly later."""

    def conclude(self, error: JobFailed) -> bool:
        """Take the error that the cell ends with, once, before :meth:`end` or the cell's end.

        The display may fold lines that the error repeats.

        Returns:
            Whether the user sees the traceback of the error already, so that the error need not
            show it.
        """

    async def end(self) -> None:
        """Write all accepted events. Called once after each :meth:`begin`, also on errors."""
