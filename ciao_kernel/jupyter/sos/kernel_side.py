"""What SoS asks of a ciao kernel: variables in and out, and what is to say of them.

language.py sends one line that calls :func:`take`, :func:`take_file`, or :func:`ask` for
one of the others. Nothing but what the user asked for is left in the namespace.
"""

from __future__ import annotations

import base64
import contextlib
import pickle
import sys
from collections.abc import Mapping, MutableMapping, Sized
from pathlib import Path
from types import ModuleType
from typing import Any

from ciao_kernel import __version__

ANSWER = "application/vnd.ciao.answer+json"
"""MIME type of an answer. A thread of the user's may display something beside it."""

_MOST_LINES = 40
_MOST_CHARACTERS = 4000


def take(namespace: MutableMapping[str, Any], pickled: str) -> None:
    """Put variables into the user's namespace: a pickled dictionary as Base64."""
    namespace.update(pickle.loads(base64.b64decode(pickled)))


def take_file(namespace: MutableMapping[str, Any], path: str) -> None:
    """Put variables into the user's namespace: a pickled dictionary that lies in a file."""
    namespace.update(pickle.loads(Path(path).read_bytes()))


def ask(namespace: dict[str, Any], mark: str, function: str, *arguments: Any) -> None:
    """Send what a function of this module returns to who asked.

    A display, not a result: ``_`` stays what the user left in it.

    Args:
        namespace: The user's.
        mark: Tells this answer from a late one.
        function: Its name.
        arguments: What it gets beside the namespace.
    """
    from IPython.display import publish_display_data

    answer = globals()[function](namespace, *arguments)
    publish_display_data({ANSWER: {"mark": mark, "answer": answer}})  # type: ignore[no-untyped-call]


def give(namespace: dict[str, Any], expressions: Mapping[str, str]) -> dict[str, list[str]]:
    """The values of expressions under their names: each pickled, as Base64, or why it is not."""
    answers = {}
    for name, text in expressions.items():
        try:
            pickled = pickle.dumps(eval(text, namespace))
        except Exception as error:  # the expression's, or whatever the value's type raises
            answers[name] = ["", _said(error)]
        else:
            answers[name] = [base64.b64encode(pickled).decode(), ""]
    return answers


def evaluate(namespace: dict[str, Any], expression: str) -> str:
    """The value of an expression that is text."""
    return str(eval(expression, namespace))


def preview(namespace: dict[str, Any], item: str) -> list[str]:
    """Type and size of a variable or an expression, and its beginning.

    SoS asks for names of files too, and leaves out an answer that starts with "Unknown variable".
    """
    from IPython.lib.pretty import pretty

    try:
        value = namespace[item] if item in namespace else eval(item, namespace)
    except (NameError, AttributeError, SyntaxError):
        return ["", f"Unknown variable {item}"]
    except Exception as error:
        return ["", f"{item} has no value: {_said(error)}"]
    try:
        whole = pretty(value, max_seq_length=100)  # type: ignore[no-untyped-call]
    except Exception as error:
        whole = f"{item} has no text: {_said(error)}"
    lines = whole.splitlines()
    text = "\n".join(lines[:_MOST_LINES])
    cut = len(lines) > _MOST_LINES or len(text) > _MOST_CHARACTERS
    return [_described(value), text[:_MOST_CHARACTERS] + ("\n…" if cut else "")]


def session(namespace: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The versions of ciao, of Python, and of the modules that the user imported."""
    versions = {"ciao": __version__, "Python": sys.version}
    for value in list(namespace.values()):
        # Of its type, for isinstance asks an object too, and a closed client's raises.
        if issubclass(type(value), ModuleType):
            with contextlib.suppress(Exception):  # a module that is loaded when it is used
                if isinstance(value.__version__, str):
                    versions[value.__name__] = value.__version__
    return list(versions.items())


def _described(value: Any) -> str:
    kind = type(value).__name__
    with contextlib.suppress(Exception):  # whatever the value's type raises
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return f"{kind} of shape {shape}"
    with contextlib.suppress(Exception):
        if issubclass(type(value), Sized):
            return f"{kind} of length {len(value)}"
    return kind


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
