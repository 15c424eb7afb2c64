"""The headers of a tar that may be foreign: whatever it claims, they take some megabytes at most.

tarfile reads a long name, a header of pax and the map of a sparse file whatever their size is, and
keeps all headers that it has read: a small compressed layer could fill the memory of a kernel.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, Any

_LONGEST = 1 << 18
"""Bytes of a header: a path has 4,096 at most, an attribute of a file 65,536."""
_LONGEST_OF_ALL = 1 << 12
"""Same, of a header for all members that follow."""
_MOST_ENTRIES = 1000
"""Entries for all members: Git writes one."""
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
        most = _LONGEST_OF_ALL if self.type == tarfile.XGLTYPE else _LONGEST
        if self.type in _OWN_TYPES and self.size > most:
            raise tarfile.ReadError(f"a header claims {self.size:,} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]

    def _proc_sparse(self, tar: tarfile.TarFile) -> Any:
        if self._sparse_structs[1]:  # type: ignore[attr-defined]
            raise tarfile.ReadError("it has a sparse file of many pieces")
        return super()._proc_sparse(tar)  # type: ignore[misc]

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise tarfile.ReadError("it has a sparse file with a map before its content")


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
