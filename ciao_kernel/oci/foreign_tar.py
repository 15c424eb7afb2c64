"""The headers of a tar that may be foreign: whatever it claims, little memory is taken.

tarfile reads a long name, and a header of pax, in one piece of whatever size they claim, and keeps
all headers that it has read: a small compressed layer could fill the memory of a kernel.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, Any

_LONGEST = 1 << 20
"""Bytes of a name or of a header of pax; Linux has no path of more than 4,096."""
_MOST_ENTRIES = 1000
"""Global entries of pax: Git writes one."""
_PIECE = 1 << 20
_OWN_TYPES = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
"""Types of headers whose content describes the next member."""


class _Header(tarfile.TarInfo):
    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.type in _OWN_TYPES and self.size > _LONGEST:
            raise tarfile.ReadError(f"a header claims {self.size:,} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]


def members(stream: IO[bytes]) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """Yield each member of an uncompressed tar, with the archive that reads its content.

    Args:
        stream: The tar, read once from front to back.

    Raises:
        tarfile.TarError: It is damaged, or its headers are too large.
    """
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_PIECE, tarinfo=_Header) as tar:
            for member in tar:
                tar.members.clear()  # type: ignore[attr-defined]
                if len(tar.pax_headers) > _MOST_ENTRIES:
                    raise tarfile.ReadError("it has too many global headers")
                yield member, tar
    except RecursionError:  # each header that describes the next one is a call of tarfile
        raise tarfile.ReadError("it has too many headers in a row") from None
