"""Cells in the grammar of the first ciao run unchanged, to the byte."""

from __future__ import annotations

import pytest

from ciao_kernel.magics import parse
from ciao_kernel.magics.scanned_cell import scan_job
from ciao_kernel.model import CleanPolicy, ReplicaGroup, Resources
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table

BODY = """
import os
import sys

print("rank", os.environ.get("RANK"), "%worker=7")


def main():
    text = '''
%s of
'''
    return text % sys.argv


main()
"""


def as_delivered(text: str) -> str:
    """What the cell is with a # in front of each line that the first ciao took."""
    lines = text.split("\n")
    return "\n".join(
        "#" + line if line.startswith("%") and not line.startswith("%s") else line for line in lines
    )


@pytest.mark.parametrize(
    ("head", "groups", "clean"),
    [
        (
            "%framework=tensorflow\n%ps=1\n%worker=2\n",
            [ReplicaGroup("ps", 1), ReplicaGroup("worker", 2)],
            None,
        ),
        (
            "%framework=pytorch\n%master=1\n%worker=3\n%cleanPolicy=all\n",
            [ReplicaGroup("master", 1), ReplicaGroup("worker", 3)],
            CleanPolicy.ALL,
        ),
        (
            "%framework=tensorflow\n%ps=1;%cpu=100m;%memory=100Mi\n"
            "%worker=2;%cpu=10m;%memory=10Mi\n%cleanPolicy=running\n",
            [
                ReplicaGroup("ps", 1, Resources("100m", "100Mi")),
                ReplicaGroup("worker", 2, Resources("10m", "10Mi")),
            ],
            CleanPolicy.RUNNING,
        ),
        (
            "%cleanPolicy=none\n%worker=1;%memory=1Gi\n%framework=tensorflow\n",
            [ReplicaGroup("worker", 1, Resources(memory="1Gi"))],
            CleanPolicy.NONE,
        ),
    ],
)
@pytest.mark.parametrize("place", ["on top", "under a blank line", "below code", "in between"])
def test_cells(
    head: str, groups: list[ReplicaGroup], clean: CleanPolicy | None, place: str
) -> None:
    first, _, rest = head.partition("\n")
    text = {
        "on top": head + BODY,
        "under a blank line": "\n" + head + BODY,
        "below code": BODY + head,
        "in between": f"{first}\n\nimport json\n{rest}{BODY}",
    }[place]
    assert scan_job(text, TABLE)
    parsed = parse.parse(text, TABLE)
    assert list(parsed.spec.groups) == groups
    assert parsed.spec.clean_policy == clean
    assert parsed.code == as_delivered(text)
    assert parsed.code.replace("\n#%", "\n%").removeprefix("#") == text
    compile(parsed.code, "cell", "exec")


def test_directives_below_an_indented_block() -> None:
    text = "def f():\n    return 1\n%framework=pytorch\n%master=1\nprint(f())"
    parsed = parse.parse(text, TABLE)
    assert parsed.code == "def f():\n    return 1\n#%framework=pytorch\n#%master=1\nprint(f())"
    assert [token.line.number for token in parsed.tokens] == [3, 4]
