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


def receive(target: str) -> None:
    """Take files from standard input; each gets its name when it is whole.

    Args:
        target: Where they go. If it is a folder, or ends with a slash, into it.
    """
    into = target.endswith("/") or os.path.isdir(target)
    part, digest, place, runs = None, hashlib.sha256(), "", False
    temporary = ""
    try:
        while True:
            kind, size = HEADER.unpack(read_in(HEADER.size))
            body = read_in(size)
            if kind == FILE:
                told = json.loads(body)
                place = os.path.join(target, told["path"]) if into else target + told["below"]
                folder = os.path.dirname(place)
                os.makedirs(folder or ".", exist_ok=True)
                # Short: the file's own name may be as long as a name can be.
                temporary = os.path.join(folder, f".{os.urandom(6).hex()}.ciao-part")
                runs = told["runs"]
                part, digest = open(temporary, "wb"), hashlib.sha256()  # noqa: SIM115
            elif kind == DATA and part is not None:
                digest.update(body)
                part.write(body)
            elif kind == END and part is not None:
                part.close()
                if digest.hexdigest().encode() != body:
                    raise OSError(f"{place} arrived damaged")
                if runs:
                    os.chmod(temporary, os.stat(temporary).st_mode | 0o111)
                os.replace(temporary, place)
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
