"""The volumes in a job's stored header, for those who find the job in a backend."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ciao_kernel.magics.directives.surviving import has_checkpoint
from ciao_kernel.magics.directives.volumes import Volumes
from ciao_kernel.magics.header import Style, lines, pieces
from ciao_kernel.model import Volume
from ciao_kernel.model.volume import CHECKPOINT, overlap


def volumes_in(header: str, role: str = "") -> tuple[Volume, ...]:
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


def not_named(header: str, words: Sequence[str]) -> list[str]:
    """Return the folders beside the program that are volumes, or hold checkpoints, for ``%output``.

    Their files stay where they are, unless a word names the folder, or what is in it.

    Args:
        header: As for :func:`volumes_in`.
        words: Paths and patterns.
    """
    places = [one.where for one in volumes_in(header) if not one.where.startswith("/")]
    places += [CHECKPOINT] if has_checkpoint(header) else []
    named = [posixpath.normpath(word) for word in words]
    return [one for one in places if not any(overlap(word, one) for word in named)]
