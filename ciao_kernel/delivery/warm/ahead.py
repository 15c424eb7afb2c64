"""Which variables a program sets before its imports: read from its text, which is not run.

A zygote has imported the modules already. What a program sets in ``os.environ`` before an import
must be there before the zygote imports, or the program needs a fresh interpreter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ciao_kernel.visible_text import visible

HEAVY = frozenset(
    {"jax", "keras", "numpy", "pandas", "scipy", "sklearn", "tensorflow", "torch", "torchvision",
     "transformers"}
)  # fmt: skip
"""Modules that a zygote imports ahead, if the program imports them. Their import starts nothing."""
_LATE = re.compile(
    r"CUDA_VISIBLE_DEVICES|CUBLAS_WORKSPACE_CONFIG|TF_CONFIG|RANK|WORLD_SIZE|LOCAL_RANK|HF_TOKEN"
    r"|(NCCL|GLOO|WANDB|MLFLOW|TOKENIZERS|MASTER|CIAO)_\w+"
)
"""Variables that modules read when they are used, not when they are imported."""
_EARLY = re.compile(
    r"(TF|XLA|KERAS|OMP|MKL|KMP|GOMP|OPENBLAS|BLIS|NUMEXPR|NUMBA|NPY|TORCH|TORCHINDUCTOR|PYTORCH"
    r"|CUDA|CUBLAS|CUDNN|JAX|LD|PYTHON|MPL|ABSL|GRPC|GLOG|TCMALLOC|MALLOC|ONEDNN|TRANSFORMERS"
    r"|HF_|HUGGINGFACE)\w*|LANG|LC_\w+|TZ"
)
"""Variables that libraries read while they are imported, or when their process starts."""

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""Statements whose changes are only a doubt: most of their text runs later, or never."""
_CERTAIN = (ast.Import, ast.ImportFrom, ast.With)
"""Statements whose imports are run."""

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


def read(text: str, modules: Mapping[str, str] = MappingProxyType({})) -> Ahead:
    """Return what a program sets before its imports; that of its modules is only a doubt.

    Args:
        text: The program; one with a syntax error sets nothing.
        modules: The texts of its local modules, by their paths.
    """
    body = _statements(text)
    bodies = {path: _statements(one) for path, one in modules.items()}
    imports = _Imports(body, bodies)
    variables: dict[str, str] = {}
    defaults: dict[str, str] = {}
    doubt = ""
    for number, node in enumerate(body):
        changes = [change for change in _changes(node) if not _is_late(change[0])]
        if not changes or not imports.follow(number):
            continue
        for name, value, is_default in changes:
            if isinstance(node, _DEFINITIONS):
                where = f"{node.name} in line {node.lineno}"
                doubt = doubt or f"{where} may change the environment before an import"
            elif name is None or value is None or imports.precede(number):
                doubt = doubt or f"line {node.lineno} changes the environment before an import"
            else:
                (defaults if is_default else variables)[name] = value
    if path := next((path for path, body in bodies.items() if imports.follow_module(body)), ""):
        doubt = doubt or f"{visible(path)} changes the environment before an import"
    known = {*variables, *defaults}
    every = [change for node in body for change in _changes(node)]
    others = [name for name, value, _ in every if value is None or name not in known]
    # Of modules only the text is asked: of one that names the environment anywhere it is not known
    # what it sets, so nothing is learned.
    quiet = not any("environ" in one or "putenv" in one for one in modules.values())
    return Ahead(variables, defaults, doubt, quiet and all(map(_is_late, others)) and not doubt)


def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _sets(node: ast.stmt) -> bool:
    return any(not _is_late(name) for name, _, _ in _changes(node))


def _is_late(name: str | None) -> bool:
    """Return whether a change by the program has its effect behind the imports too."""
    if name is None:
        return False
    # Python has read its own before the program: they are for processes that it starts.
    return name.startswith("PYTHON") or _LATE.fullmatch(name) is not None


class _Imports:
    """The places at which a program imports modules that a zygote imports ahead.

    Args:
        body: The statements of the program.
        modules: Those of its local modules, by their paths.
    """

    def __init__(self, body: list[ast.stmt], modules: Mapping[str, list[ast.stmt]]) -> None:
        self._body = body
        self._heavy = [_imported(node) & HEAVY for node in body]
        local = {path.partition("/")[0].removesuffix(".py") for path in modules}
        self._local = [bool(_imported(node) & local) for node in body]
        parts = [node for one in modules.values() for node in one]
        self._of_modules = set().union(*map(_imported, parts)) & HEAVY
        self._called = {n for n, node in enumerate(body) if isinstance(node, _DEFINITIONS)}

    def precede(self, number: int) -> bool:
        """Return whether one may come before a statement."""
        return any(self._heavy[:number]) or bool(self._of_modules and any(self._local[:number]))

    def follow(self, number: int) -> bool:
        """Return whether one may come behind a statement, or inside of it."""
        if number not in self._called and any(self._heavy[number + 1 :]):
            return True
        behind = self._at((*range(number, len(self._body)), *self._called))
        return bool(behind - self._certain(number))

    def follow_module(self, body: list[ast.stmt]) -> bool:
        """Return whether one may come behind a change by a local module."""
        change = next((number for number, node in enumerate(body) if _sets(node)), None)
        if change is None:
            return False
        first = self._local.index(True) if any(self._local) else 0
        every = set().union(self._of_modules, *self._heavy)
        own = [_imported(node) & HEAVY for node in body[:change]]
        return bool(every - self._certain(first) - _certain(body, own))

    def _at(self, numbers: Iterable[int]) -> set[str]:
        found: set[str] = set()
        for number in numbers:
            found |= self._heavy[number]
            found |= self._of_modules if self._local[number] else set()
        return found

    def _certain(self, number: int) -> set[str]:
        """Return the modules that are certainly imported before a statement."""
        return _certain(self._body[:number], self._heavy)


def _certain(body: list[ast.stmt], heavy: list[set[str]]) -> set[str]:
    """Return those of the imported modules that no branch may leave out."""
    pairs = zip(body, heavy, strict=False)
    found = set().union(*(names for node, names in pairs if isinstance(node, _CERTAIN)))
    return found | {"numpy"} if found else found  # all of them import it


def is_early(name: str, texts: list[str]) -> bool:
    """Return whether a variable of ``%envvar`` has to be there before the imports.

    Args:
        name: The variable.
        texts: The program and its modules: what they read themselves may come with the run.
    """
    if _LATE.fullmatch(name):
        return False
    return bool(_EARLY.fullmatch(name)) or not any(name in text for text in texts)


def _imported(statement: ast.stmt) -> set[str]:
    """Return the top-level names of the modules that a statement imports."""
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def _changes(statement: ast.stmt) -> Iterator[_Change]:
    """Yield the changes of the environment; values only of a statement that is always run."""
    simple = isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr)

    def text(node: ast.expr) -> str | None:
        return _word(node) if simple else None

    for node in ast.walk(statement):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            if isinstance(node, ast.AugAssign) and _is_environ(node.target):
                yield from _items(node.value, text)
            for target in targets:
                if isinstance(target, ast.Subscript) and _is_environ(target.value):
                    plain = isinstance(node, ast.Assign)
                    yield _word(target.slice), text(node.value) if plain else None, False  # type: ignore[union-attr]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _called(node, node.func, text)


def _word(node: ast.expr) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None  # type: ignore[attr-defined]


def _called(
    call: ast.Call, function: ast.Attribute, text: Callable[[ast.expr], str | None]
) -> Iterator[_Change]:
    name, arguments = function.attr, call.args
    if name in ("putenv", "unsetenv") or (
        name in ("setdefault", "pop", "clear", "popitem") and _is_environ(function.value)
    ):
        sets = name in ("putenv", "setdefault") and len(arguments) == 2
        value = text(arguments[1]) if sets else None
        yield _word(arguments[0]) if arguments else None, value, name == "setdefault"
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
        yield (None if key is None else _word(key)), text(value), False


def _is_environ(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "environ"
    return isinstance(node, ast.Name) and node.id == "environ"
