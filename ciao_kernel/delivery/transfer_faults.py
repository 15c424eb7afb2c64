"""The faults of one transfer of files: whether it goes on after them."""

from __future__ import annotations

import time

from ciao_kernel.delivery.incoming_files import WrongDigest
from ciao_kernel.delivery.transfers import is_final
from ciao_kernel.errors import BackendError, Refused

TRIES = 6
"""Connections in a row that may bring nothing, and files that may arrive damaged."""


class TransferFaults:
    """Counts the faults of one transfer.

    Args:
        patience: Seconds for which refused credentials are waited for: their user may sign in. With
            0 they count as a connection that brings nothing.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._failed = self._damaged = 0
        self._since: float | None = None
        self.begins_wait = False
        """Whether the last fault is the first refusal of credentials that is waited for."""

    def add(self, error: BackendError, *, news: bool) -> bool:
        """Note a fault, and return whether the transfer goes on.

        Args:
            error: The fault.
            news: Whether files came before it.
        """
        self._failed = 0 if news else self._failed
        before, self._since = None if news else self._since, None
        # Not by the code: a node also answers 401 whose own certificate has expired.
        if self._patience and isinstance(error, Refused) and error.signed_out:
            self._failed, now = 0, time.monotonic()
            self.begins_wait = before is None
            self._since = now if before is None else before
            return now - self._since < self._patience
        self.begins_wait = False
        self._failed += not news
        self._damaged += isinstance(error, WrongDigest)
        return not is_final(error) and max(self._failed, self._damaged) < TRIES

    @property
    def waits(self) -> bool:
        """Return whether the last fault was refused credentials that are waited for."""
        return self._since is not None
