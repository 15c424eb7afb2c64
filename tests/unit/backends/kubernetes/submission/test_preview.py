"""The YAML of a dry run: a person reads the program in it, and kubectl gets the same object."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.backends.kubernetes.submission.preview import as_yaml

PROGRAM = "#%worker=2\n\nfor step in range(3):\n    print('step', step)\n"
OWN = '"""Starts ciao\'s parts."""\n\nimport sys\n'


def test_the_program_has_the_lines_of_the_cell_and_modules_of_ciao_are_compact() -> None:
    item = {"kind": "ConfigMap", "data": {"program.py": PROGRAM, "file-0": OWN}}
    text = as_yaml(item, {OWN})
    assert text.splitlines()[2:7] == [
        "  program.py: |",
        "    #%worker=2",
        "",
        "    for step in range(3):",
        "        print('step', step)",
    ]
    assert text.splitlines()[7].startswith('  file-0: "')
    assert text.splitlines()[7].endswith('import sys\\n"')
    assert yaml.safe_load(text) == item


@given(st.text())
def test_any_text_is_the_same_for_kubectl(text: str) -> None:
    assert yaml.safe_load(as_yaml({"data": {"a": text}}, ())) == {"data": {"a": text}}
