"""Functions that SoS calls in a ciao kernel: exchange, preview and expand variables.

language.py sends one line that calls :func:`take`, :func:`take_file`, or, for the other
functions, :func:`ask`. Only variables that the user requested are added to the namespace.
"""

from __future__ import annotations

import base64
import logging
import pickle
import sys
from collections.abc import Mapping, MutableMapping, Sized
from pathlib import Path
from types import ModuleType
from typing import Any

from ciao_kernel import __version__, log

_log = logging.getLogger(__name__)

ANSWER = "application/vnd.ciao.answer+json"
"""MIME type of an answer. A thread of the user may display other data meanwhile."""

_MOST_LINES = 40
_MOST_CHARACTERS = 4000


def take(namespace: MutableMapping[str, Any], pickled: str) -> None:
    """Put variables into the user's namespace, from a pickled dictionary as Base64."""
    namespace.update(pickle.loads(base64.b64decode(pickled)))


def take_file(namespace: MutableMapping[str, Any], path: str) -> None:
    """Put variables into the user's namespace, from a pickled dictionary in a file."""
    namespace.update(pickle.loads(Path(path).read_bytes()))


def ask(namespace: dict[str, Any], mark: str, function: str, *arguments: Any) -> None:
    """Call a function of this module, and send its result to SoS.

    The result is sent as display data, not as the cell's result: ``_`` keeps its value.

    Args:
        namespace: The user's namespace.
        mark: Distinguishes this answer from a late one.
        function: Name of the function.
        arguments: Further arguments, after the namespace.
    """
    from IPython.display import publish_display_data

    answer = globals()[function](namespace, *arguments)
    publish_display_data({ANSWER: {"mark": mark, "answer": answer}})  # type: ignore[no-untyped-call]


def give(namespace: dict[str, Any], expressions: Mapping[str, str]) -> dict[str, list[str]]:
    """Return for each name the pickled value of its expression as Base64, and an error text.

    One of the two texts is empty.
    """
    answers = {}
    for name, text in expressions.items():
        try:
            pickled = pickle.dumps(eval(text, namespace))
        except Exception as error:  # raised by the expression, or by the type of its value
            answers[name] = ["", _error_text(error)]
        else:
            answers[name] = [base64.b64encode(pickled).decode(), ""]
    return answers


def evaluate(namespace: dict[str, Any], expression: str) -> str:
    """Return the value of an expression as text."""
    return str(eval(expression, namespace))


def preview(namespace: dict[str, Any], item: str) -> list[str]:
    """Return type and size of a variable or an expression, and the beginning of its text.

    SoS also asks for file names, and ignores an answer that starts with "Unknown variable".
    """
    from IPython.lib.pretty import pretty

    try:
        value = namespace[item] if item in namespace else eval(item, namespace)
    except (NameError, AttributeError, SyntaxError):
        return ["", f"Unknown variable {item}"]
    except Exception as error:
        return ["", f"{item} has no value: {_error_text(error)}"]
    try:
        whole = pretty(value, max_seq_length=100)  # type: ignore[no-untyped-call]
    except Exception as error:
        whole = f"{item} has no text: {_error_text(error)}"
    lines = whole.splitlines()
    text = "\n".join(lines[:_MOST_LINES])
    cut = len(lines) > _MOST_LINES or len(text) > _MOST_CHARACTERS
    return [_described(value), text[:_MOST_CHARACTERS] + ("\n…" if cut else "")]


def session(namespace: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the versions of ciao, of Python, and of the modules that the user imported."""
    versions = {"ciao": __version__, "Python": sys.version}
    for value in list(namespace.values()):
        # Not isinstance: it also asks the object for its class, and a closed client raises then.
        if issubclass(type(value), ModuleType):
            with log.ignored(_log, "reading a version"):  # of a module that loads at its first use
                if isinstance(value.__version__, str):
                    versions[value.__name__] = value.__version__
    return list(versions.items())


def _described(value: Any) -> str:
    kind = type(value).__name__
    with log.ignored(_log, "describing a value"):  # any error that its type raises
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return f"{kind} of shape {shape}"
    with log.ignored(_log, "describing a value"):
        if issubclass(type(value), Sized):
            return f"{kind} of length {len(value)}"
    return kind


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
