"""A right to read a log that is missing for a while: a RoleBinding is deleted and applied again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ciao_kernel.errors import Refused


class Denials:
    """The patience of the readers of one replica's logs with a missing right.

    Args:
        tell: Takes a sentence for the user; None: a missing right is not waited for.
    """

    def __init__(self, tell: Callable[[str], Awaitable[None]] | None = None) -> None:
        self._tell = tell
        self._was_read = self._told = False

    def note_log(self) -> None:
        """Note that a log was returned: the right is there, or it has been."""
        self._was_read, self._told = True, False

    async def outlast(self, refusal: Refused, ended: bool) -> None:
        """Tell once that the log is asked for until the right is back: no line is lost by then.

        Args:
            refusal: The server's refusal, which has lasted for some time.
            ended: The container has ended: its job waits for the rest of the log.

        Raises:
            Refused: The right was never there, or the log is not worth the wait.
        """
        if self._tell is None or ended or not self._was_read:
            raise refusal
        if not self._told:
            self._told = True
            await self._tell(
                f"The cluster does not return the log any more ({refusal.message}). "
                "The lines follow as soon as you may read them again."
            )
