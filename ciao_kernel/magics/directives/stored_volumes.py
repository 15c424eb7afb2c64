"""The volumes in a job's stored header, for those who find the job in a backend."""

from __future__ import annotations

from ciao_kernel.magics.directives.volumes import Volumes
from ciao_kernel.magics.header import Style, lines, pieces
from ciao_kernel.model import Volume


def asked(header: str, role: str = "") -> tuple[Volume, ...]:
    """Return the volumes of a role's replicas, or those of all replicas, each once.

    Args:
        header: Lines as :func:`ciao_kernel.magics.render.render` writes them: a directive, or a
            role with what is for its replicas alone.
        role: The role; "" for all roles.
    """
    found: dict[Volume, None] = {}
    for line in lines(header):
        tokens = pieces(line, Style.CELL)
        for place, token in enumerate(tokens):
            of = tokens[0].name if place else ""
            if token.name != "volume" or (of and role not in ("", of)):
                continue
            try:
                found |= dict.fromkeys(Volumes().parse(token.value or ""))
            except ValueError:
                return ()  # written by another version
    return tuple(found)
