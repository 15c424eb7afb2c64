"""Which variables a program sets before its imports: read from its text, which is not run.

A zygote has imported the modules already. What a program sets in ``os.environ`` before an import
must be there before the zygote imports, or the program needs a fresh interpreter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

HEAVY = frozenset(
    {"jax", "keras", "numpy", "pandas", "scipy", "sklearn", "tensorflow", "torch", "torchvision",
     "transformers"}
)  # fmt: skip
"""Modules that a zygote imports ahead, if the program imports them. Their import starts nothing."""
_LATE = re.compile(
    r"CUDA_VISIBLE_DEVICES|TF_CONFIG|RANK|WORLD_SIZE|LOCAL_RANK"
    r"|(NCCL|GLOO|WANDB|HF|MLFLOW|TOKENIZERS|MASTER|CIAO)_\w+"
)
"""Variables that modules read when they are used, not when they are imported."""
_EARLY = re.compile(
    r"(TF|XLA|KERAS|OMP|MKL|KMP|GOMP|OPENBLAS|BLIS|NUMEXPR|NUMBA|NPY|TORCH|TORCHINDUCTOR|PYTORCH"
    r"|CUDA|CUBLAS|CUDNN|JAX|LD|PYTHON|MPL|ABSL|GRPC|GLOG|TCMALLOC|MALLOC|ONEDNN|TRANSFORMERS)"
    r"\w*|LANG|LC_\w+|TZ"
)
"""Variables that libraries read while they are imported, or when their process starts."""

_Change = tuple[str | None, str | None, bool]
"""Name and value of a variable, and whether it is only a default; None for what a run knows."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Variables that have to be in the environment before the imports of a program."""

    variables: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    """Those of ``setdefault``: only if the replica has no other value."""
    doubt: str = ""
    """Why only a fresh interpreter is right; "" if a fork is."""
    learns: bool = True
    """Whether what the program imports may be imported ahead the next time."""


def read(text: str) -> Ahead:
    """Return what a program's top level sets before its imports.

    Args:
        text: The program; one with a syntax error sets nothing.
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return Ahead()
    variables: dict[str, str] = {}
    defaults: dict[str, str] = {}
    doubt = ""
    imports = [any(True for one in ast.walk(node) if _is_heavy(one)) for node in body]
    imported = False
    for number, node in enumerate(body):
        if any(imports[number + 1 :]) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            for name, value, is_default in _changes(node):
                if name is not None and _LATE.fullmatch(name):
                    continue
                if name is None or value is None or imported:
                    doubt = doubt or f"line {node.lineno} changes the environment before an import"
                else:
                    (defaults if is_default else variables)[name] = value
        imported = imported or imports[number]
    known = {*variables, *defaults}
    others = [name for node in body for name, _, _ in _changes(node) if name not in known]
    late = all(name is not None and _LATE.fullmatch(name) for name in others)
    return Ahead(variables, defaults, doubt, late and not doubt)


def is_early(name: str, texts: list[str]) -> bool:
    """Return whether a variable of ``%envvar`` has to be there before the imports.

    Args:
        name: The variable.
        texts: The program and its modules: what they read themselves may come with the run.
    """
    if _LATE.fullmatch(name):
        return False
    return bool(_EARLY.fullmatch(name)) or not any(name in text for text in texts)


def _is_heavy(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(one.name.partition(".")[0] in HEAVY for one in node.names)
    if isinstance(node, ast.ImportFrom) and not node.level:
        return (node.module or "").partition(".")[0] in HEAVY
    return False


def _changes(statement: ast.stmt) -> Iterator[_Change]:
    """Yield the changes of the environment."""
    simple = isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr)

    def text(node: ast.expr) -> str | None:
        is_text = simple and isinstance(node, ast.Constant) and isinstance(node.value, str)
        return node.value if is_text else None  # type: ignore[attr-defined]

    for node in ast.walk(statement):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            if isinstance(node, ast.AugAssign) and _is_environ(node.target):
                yield from _items(node.value, text)
            for target in targets:
                if isinstance(target, ast.Subscript) and _is_environ(target.value):
                    plain = isinstance(node, ast.Assign)
                    yield text(target.slice), text(node.value) if plain else None, False  # type: ignore[union-attr]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _called(node, node.func, text)


def _called(
    call: ast.Call, function: ast.Attribute, text: Callable[[ast.expr], str | None]
) -> Iterator[_Change]:
    name, arguments = function.attr, call.args
    if name in ("putenv", "unsetenv") or (
        name in ("setdefault", "pop", "clear", "popitem") and _is_environ(function.value)
    ):
        values = [text(one) for one in arguments]
        sets = name in ("putenv", "setdefault") and len(values) == 2
        yield values[0] if values else None, values[1] if sets else None, name == "setdefault"
    elif name == "update" and _is_environ(function.value):
        for word in call.keywords:
            yield word.arg, text(word.value), False
        for one in arguments:
            yield from _items(one, text)


def _items(node: ast.expr, text: Callable[[ast.expr], str | None]) -> Iterator[_Change]:
    """Yield the changes by a dictionary, as in ``os.environ |= {"A": "1"}``."""
    if not isinstance(node, ast.Dict):
        yield None, None, False
        return
    for key, value in zip(node.keys, node.values, strict=True):
        yield (None if key is None else text(key)), text(value), False


def _is_environ(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "environ"
    return isinstance(node, ast.Name) and node.id == "environ"
