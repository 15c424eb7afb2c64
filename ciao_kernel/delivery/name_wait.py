"""Text of a function by which a program in a replica waits for the name of another one.

The name of a pod exists as soon as the pod has an address, perhaps after it has pulled an image.
Libraries such as Paddle and XGBoost repeat a connection that fails, but not a lookup.
"""

from __future__ import annotations

WAIT_FOR_NAME = """\
def wait_for_name(host, patience):
    # Returns the family of its address; None if the name is not known in time.
    until = time.monotonic() + patience
    while True:
        try:
            return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
        except OSError:
            if time.monotonic() > until:
                return None
            time.sleep(0.2)
"""
"""Needs the modules ``socket`` and ``time``."""
