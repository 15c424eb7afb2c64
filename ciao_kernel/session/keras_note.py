"""Notes before the start of a job whose `fit` Keras 3 will refuse."""

from __future__ import annotations

import ast
import importlib.util
import warnings
from collections.abc import Collection

from ciao_kernel.model import JobSpec

LEGACY = "TF_USE_LEGACY_KERAS"
"""Variable with which ``tf.keras`` is Keras 2, from the package tf_keras
(https://keras.io/getting_started/, "TensorFlow + Keras 2 backwards compatibility")."""
REMEDY = f"add %packages=tf_keras and %envvar={LEGACY}=1."
_STRATEGIES = frozenset(
    {
        "MultiWorkerMirroredStrategy",
        "ParameterServerStrategy",
        "ParameterServerStrategyV2",
    }
)
"""Classes of ``tf.distribute`` that Keras 3 does not support."""


def keras_note(
    spec: JobSpec, code: str, environment: Collection[str] = (), *, here: bool = False
) -> str:
    """Return a note if the code plainly trains by Keras' `fit` under such a strategy, else "".

    Only the cell itself is read: a strategy or a `fit` in another module gives no note.

    Args:
        spec: The job.
        code: The program.
        environment: Names of the variables that replicas get from the kernel's environment.
        here: The replicas use the kernel's Python, so its tf_keras is theirs too.
    """
    if spec.framework != "tensorflow" or len(spec.replicas()) < 2 or LEGACY in code:
        return ""
    if LEGACY in environment or LEGACY in dict(spec.env):
        return ""
    if "Strategy" not in code or "fit" not in code or "tf_keras" in code:
        return ""  # the usual cell costs no parser
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's remarks about the code come elsewhere
            nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    strategy = next((name for name in map(_last_name, called) if name in _STRATEGIES), "")
    fits = any(isinstance(one, ast.Attribute) and one.attr == "fit" for one in called)
    if not strategy or not fits or not any(map(_names_keras, nodes)):
        return ""
    remedy = f"add %envvar={LEGACY}=1." if here and importlib.util.find_spec("tf_keras") else REMEDY
    return (
        f"Keras 3, which TensorFlow has since 2.16, does not train by `fit` under {strategy}. To "
        f"train with Keras 2, {remedy}"
    )


def _last_name(function: ast.expr) -> str:
    """Return the last part of a called name: ``b`` for ``a.b()``."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _names_keras(node: ast.AST) -> bool:
    """Return whether a part of the code uses Keras: ``tf.keras``, ``keras``, an import of it."""
    if isinstance(node, ast.Attribute):
        return node.attr == "keras"
    if isinstance(node, ast.Name):
        return node.id == "keras"
    if isinstance(node, ast.ImportFrom):
        return "keras" in (node.module or "").split(".")
    return isinstance(node, ast.alias) and "keras" in node.name.split(".")
