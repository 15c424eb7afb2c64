"""Takes files of another machine into a replica."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys

from ciao_kernel.delivery.replica_files.messages import (
    DATA,
    DONE,
    END,
    FAULT,
    FILE,
    HEADER,
    read_in,
    write_out,
)
from ciao_kernel.delivery.replica_files.placing import create_part, followed, part_beside, put


def receive(target: str) -> None:
    """Take files from standard input; each gets its mode and its name when it is whole.

    Only the place of a single file is followed if it is a link.

    Args:
        target: Where they go. If it is a folder, or ends with a slash, into it.
    """
    into = target.endswith("/") or os.path.isdir(target)
    part, digest, place, mode = None, hashlib.sha256(), "", 0
    temporary = real = ""
    try:
        while True:
            kind, size = HEADER.unpack(read_in(HEADER.size))
            body = read_in(size)
            if kind == FILE:
                told = json.loads(body)
                place = os.path.join(target, told["path"]) if into else target + told["below"]
                os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
                real = place if told["below"] else followed(place)
                new, mode = part_beside(real), told["mode"]
                part, digest = os.fdopen(create_part(new), "wb"), hashlib.sha256()
                temporary = new
            elif kind == DATA and part is not None:
                digest.update(body)
                part.write(body)
            elif kind == END and part is not None:
                part.close()
                if digest.hexdigest().encode() != body:
                    raise OSError(f"{place} arrived damaged")
                put(temporary, real, mode)
                temporary = ""
            elif kind == FAULT and part is not None:  # the other side cannot read the rest of it
                part.close()
                os.remove(temporary)
                temporary = ""
            elif kind == DONE:
                write_out(HEADER.pack(DONE, 0))
                return
    except OSError as error:
        sys.exit(f"{error.strerror or error}: {place}")
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.remove(temporary)
