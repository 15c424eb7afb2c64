"""Lets signals wake the kernel's event loop.

ipykernel's handler for an awaiting cell schedules a callback, but the loop sleeps in select() until
the next timer fires: `await asyncio.sleep(20)` would be interrupted after 20 seconds.
"""

from __future__ import annotations

import signal
import socket
import threading
from typing import Any


class SignalWakeup:
    """A socket that becomes readable by each signal."""

    def __init__(self) -> None:
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def start(self, io_loop: Any) -> None:
        """Wake a loop by signals.

        Args:
            io_loop: The kernel's loop, of tornado.
        """
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._sockets = (reader, writer)
        self.renew()
        io_loop.add_handler(reader, lambda *_: reader.recv(4096), io_loop.READ)

    def renew(self) -> None:
        """Wake the loop again if the user's code has changed what signals wake."""
        if self._sockets is not None and threading.current_thread() is threading.main_thread():
            own = self._sockets[1].fileno()
            other = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
            if other not in (-1, own):
                # Keep the one of the user's `loop.add_signal_handler`, which also wakes the loop.
                signal.set_wakeup_fd(other)
