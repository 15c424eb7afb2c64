"""What SoS asks of a ciao kernel: variables in and out, and what is to say of them.

:mod:`ciao_kernel.sos.language` sends one line that calls one of these. Nothing but what the user
asked for is left in the namespace.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
from collections.abc import Mapping, MutableMapping, Sized
from pathlib import Path
from types import ModuleType
from typing import Any

from ciao_kernel import __version__

_MOST_LINES = 40
_MOST_CHARACTERS = 4000


def take(namespace: MutableMapping[str, Any], pickled: str) -> None:
    """Put variables into the user's namespace: a pickled dictionary as Base64."""
    namespace.update(pickle.loads(base64.b64decode(pickled)))


def take_file(namespace: MutableMapping[str, Any], path: str) -> None:
    """Put variables into the user's namespace: a pickled dictionary that lies in a file."""
    namespace.update(pickle.loads(Path(path).read_bytes()))


def give(namespace: dict[str, Any], expressions: Mapping[str, str]) -> None:
    """Answer with the values of expressions under their names, pickled, as Base64."""
    values = {name: eval(text, namespace) for name, text in expressions.items()}
    _answer(base64.b64encode(pickle.dumps(values)).decode())


def evaluate(namespace: dict[str, Any], expression: str) -> None:
    """Answer with the value of an expression that is text."""
    _answer(str(eval(expression, namespace)))


def preview(namespace: Mapping[str, Any], name: str) -> None:
    """Answer with a variable's type and size, and with its beginning."""
    if name not in namespace:
        _answer(json.dumps(["", f"Unknown variable {name}"]))
        return
    from IPython.lib.pretty import pretty

    value = namespace[name]
    lines = pretty(value, max_seq_length=100).splitlines()  # type: ignore[no-untyped-call]
    text = "\n".join(lines[:_MOST_LINES])
    cut = len(lines) > _MOST_LINES or len(text) > _MOST_CHARACTERS
    _answer(json.dumps([_described(value), text[:_MOST_CHARACTERS] + ("\n…" if cut else "")]))


def session(namespace: Mapping[str, Any]) -> None:
    """Answer with the versions of ciao, of Python, and of the modules that the user imported."""
    versions = {"ciao": __version__, "Python": sys.version}
    for value in list(namespace.values()):
        version = getattr(value, "__version__", None)
        if isinstance(value, ModuleType) and isinstance(version, str):
            versions[value.__name__] = version
    _answer(json.dumps(list(versions.items())))


def _described(value: Any) -> str:
    kind = type(value).__name__
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{kind} of shape {shape}"
    return f"{kind} of length {len(value)}" if isinstance(value, Sized) else kind


def _answer(text: str) -> None:
    """Send text to who asked. A display, not a result: ``_`` stays what the user left in it."""
    from IPython.display import publish_display_data

    publish_display_data({"text/plain": text})  # type: ignore[no-untyped-call]
