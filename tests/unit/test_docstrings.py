"""The first line of a docstring says what a thing is or does, so it is no clause of a question."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ciao_kernel

CODE = Path(ciao_kernel.__file__).parent
_CLAUSE = re.compile(r"(?:What|Whether|How|Where|The same)\b")
EXCEPTIONS = {
    "backends/kubernetes/existing/usage",
    "backends/kubernetes/following/end_waits",
    "backends/kubernetes/manifests/indexed_start",
    "backends/kubernetes/manifests/queue_request",
    "backends/kubernetes/manifests/replica_variables",
    "backends/kubernetes/manifests/runtime_overrides",
    "backends/kubernetes/output/claim_reader:Pods",
    "backends/kubernetes/output/claim_reader:Reader",
    "backends/kubernetes/output/output_claim:Kept",
    "backends/kubernetes/output/output_state",
    "backends/kubernetes/output/reader_start:Patience",
    "backends/kubernetes/output/reader_start:Pods",
    "backends/kubernetes/output/removals:Removals.busy",
    "backends/kubernetes/states/__init__",
    "backends/kubernetes/states/trainer_progress",
    "backends/kubernetes/submission/pod_resources:Defaults",
    "backends/kubernetes/submission/warm_files",
    "config/settings:Settings.own_folder",
    "delivery/input/files_option",
    "delivery/input/program",
    "session/inspection/__init__",
    "session/inspection/conversation:Conversation.queued",
    "session/inspection/positions",
    "session/inspection/positions:Position",
    "session/inspection/positions:Stand.key",
    "session/inspection/prompts:Prompts.active",
    "session/inspection/watchers",
}
"""Older ones. Take one out when its docstring is mended; add none."""


def clauses(text: str, module: str) -> Iterator[str]:
    """Yield the public names of a module whose docstrings begin so."""
    tree = ast.parse(text)
    if _CLAUSE.match(ast.get_docstring(tree) or ""):
        yield module
    waiting: list[tuple[str, ast.AST]] = [(f"{module}:", tree)]
    while waiting:
        prefix, owner = waiting.pop()
        for node in ast.iter_child_nodes(owner):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if node.name.startswith("_"):
                continue
            if _CLAUSE.match(ast.get_docstring(node) or ""):
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                waiting.append((f"{prefix}{node.name}.", node))


def test_a_docstring_begins_with_what_a_thing_is_or_does() -> None:
    found = {
        name
        for path in CODE.rglob("*.py")
        for name in clauses(
            path.read_text(encoding="utf-8"), path.relative_to(CODE).with_suffix("").as_posix()
        )
    }
    assert found - EXCEPTIONS == set()
    assert EXCEPTIONS - found == set()  # the list only shrinks


def test_a_clause_is_found_wherever_it_is() -> None:
    text = '''"""What it is."""
class Place:
    """Where it is."""
    def same(self):
        """The same, later."""
    def _own(self):
        """How it is."""
async def asked():
    """Whether it is."""
def returned():
    """Return what it is."""
'''
    assert set(clauses(text, "m")) == {"m", "m:Place", "m:Place.same", "m:asked"}
