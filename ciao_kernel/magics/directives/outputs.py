"""The directive ``%output``, which brings files and variables of the program back."""

from __future__ import annotations

import posixpath
import unicodedata
from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.shell_words import has_unquoted, listed, quote
from ciao_kernel.magics.value_types import refuse_switch
from ciao_kernel.model.outputs import OUTPUT_FOLDER, OUTPUT_WAY, OutputWay, output_paths

_SIGNS = ("/", ".", "*")
"""A word with one of these is a path; any other word is the name of a variable."""
_BY_S3 = f"{OUTPUT_WAY}{OutputWay.S3}"
_UNFIT = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of characters that end a line of a stored header, have no place in one, or
cannot be seen, as pages have them from which people paste."""
_SEPARATED = f"words that are separated by spaces, such as model/ {_BY_S3}"


@dataclass(frozen=True, slots=True)
class Outputs:
    """Names of variables that the program has at its end, and paths of files that it writes.

    Without a value, or with a way alone, it is the folder :data:`OUTPUT_FOLDER`.
    """

    expected: str = (
        "names of the program's variables, or paths such as model/ and ./metrics; %output alone "
        "is the folder output"
    )
    bare: bool = True

    def parse(self, text: str) -> tuple[str, ...]:
        """Check each word; the same word twice counts once."""
        found = listed(text)
        if text and not found:
            raise ValueError(self.expected)
        blanks = {one for one in text if unicodedata.category(one) == "Zs"} - {" "}
        if any(has_unquoted(text, sign) for sign in (";", *blanks)):
            raise ValueError(_SEPARATED)
        if len(found) == 1:
            refuse_switch(found[0])
        if all(word.startswith(OUTPUT_WAY) for word in found):
            found = (OUTPUT_FOLDER, *found)
        return tuple(dict.fromkeys(map(self._checked, found)))

    def render(self, value: tuple[str, ...]) -> str:
        """Join the words with spaces."""
        return " ".join(map(_quoted, value))

    def _checked(self, word: str) -> str:
        if word.isidentifier():
            return word
        if word.startswith(OUTPUT_WAY):
            if word.removeprefix(OUTPUT_WAY) not in list(OutputWay):
                raise ValueError(" or ".join(f"{OUTPUT_WAY}{way}" for way in OutputWay))
            return word
        if not any(sign in word for sign in _SIGNS):
            raise ValueError(f"{self.expected}; ./ before a name makes it a path")
        if f":{OUTPUT_WAY}" in word:
            raise ValueError(_SEPARATED)
        if "://" in word:
            raise ValueError(
                f"a path relative to the program's folder; {_BY_S3} brings files back by the "
                "bucket of the setting outputStore"
            )
        return path(word)


def _quoted(word: str) -> str:
    """Quote a word; a comma outside quotes would separate two words."""
    text = quote(word)
    return f"'{text}'" if text == word and "," in word else text


def path(word: str) -> str:
    """Return a path in the program's folder; raise ValueError if it is none.

    The error does not repeat the word, which may be a password in the wrong place.
    """
    if "://" in word:
        raise ValueError("a path relative to the program's folder, not an address")
    if any(unicodedata.category(character) in _UNFIT for character in word):
        raise ValueError("a path without control characters or others that nobody can see")
    if word.startswith(("/", "~")):
        raise ValueError("a path relative to the program's folder")
    if ".." in word.split("/"):
        raise ValueError("a path inside the program's folder, so without '..'")
    if posixpath.normpath(word) == ".":
        raise ValueError("a file or a folder in the program's folder, not that folder itself")
    return word


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "output",
            "outputs",
            Outputs(),
            "Files that the program writes, and variables that it has at its end: both come back. "
            "A path has a slash, a dot or a star; without a value it is the folder output. "
            "by:exec, by:log, by:s3, by:registry and by:claim choose the way by which files leave "
            "a pod.",
            "%output=model/ log.csv metrics",
            repeatable=True,
            option_word="outputValues",  # --output is a command's own format, as in kubectl
        ),
    ]


def words_in(header: str) -> tuple[str, ...]:
    """Return the words in a job's stored header, of which backends find the job.

    Args:
        header: See :mod:`ciao_kernel.magics.stored_header`.
    """
    return stored_header.value(header, "output", Outputs(), ())


def paths(header: str) -> tuple[str, ...]:
    """Return the paths in a job's stored header.

    Args:
        header: As for :func:`words_in`.
    """
    return output_paths(words_in(header))


def names(header: str) -> tuple[str, ...]:
    """Return the names of variables in a job's stored header.

    Args:
        header: As for :func:`words_in`.
    """
    return tuple(word for word in words_in(header) if word.isidentifier())
