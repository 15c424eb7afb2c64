"""Result of a copy from a replica or to it, and the texts about what was not copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ciao_kernel.delivery.transfers import size_text
from ciao_kernel.errors import BackendError
from ciao_kernel.visible_text import counted, listed, short, visible


@dataclass(frozen=True, slots=True)
class Copied:
    """Files that were copied, and those that were not."""

    count: int
    size: int
    faults: Mapping[str, str]
    """Files and folders that could not be copied, and why."""
    left_out: Sequence[str]
    """Links and other things that are never copied."""

    @property
    def text(self) -> str:
        """Files that were copied, and what was left out on purpose."""
        text = f"{counted(self.count, 'file')}, {size_text(self.size)}"
        return f"{text}; {_left_out(self.left_out)}" if self.left_out else text

    def check(self) -> None:
        """Refuse to call a copy whole that is not: its source may be removed next.

        Raises:
            BackendError: Some files could not be copied.
        """
        if self.faults:
            raise BackendError(
                f"these could not be copied: {listed_faults(self.faults)}.",
                "All other files were copied.",
            )


def listed_faults(faults: Mapping[str, str]) -> str:
    """Return files with their faults as text."""
    return listed([f"{path} ({why})" for path, why in faults.items()])


def only_left_out(path: str, left_out: Sequence[str], all_of_it: str = "") -> BackendError:
    """Return the error of a copy for which there are only files that it leaves out.

    Args:
        path: What was to be copied.
        left_out: The files.
        all_of_it: Path for all that is in the folder to which a link may lead; "" if there is none.
    """
    more = (
        f"; if it is a link to a folder, `{visible(all_of_it)}` copies all that is in it"
        if all_of_it
        else ""
    )
    return BackendError(
        f"nothing of {visible(path)} could be copied: {_left_out(left_out)}.",
        f"Name what a link leads to{more}.",
    )


def _left_out(paths: Sequence[str]) -> str:
    rule = "links to folders or out of the folder, and what is no file, are left out"
    return f"{rule}: {listed([short(path) for path in paths])}"
