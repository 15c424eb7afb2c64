"""What shows a job that is followed."""

from __future__ import annotations

from typing import Protocol

from ciao_kernel.model import Event, Job


class Display(Protocol):
    """Where a session shows what happens. Two renderers: notebook and terminal."""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """A job is about to be followed; ``follow`` names the roles and replicas to show."""

    def show(self, event: Event) -> None:
        """Take one event. Returns at once: what is shown is written a little later."""

    async def end(self) -> None:
        """Write all that was taken. Called once after each :meth:`begin`, also on errors."""
