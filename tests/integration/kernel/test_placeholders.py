"""Variables of the notebook in directives, in the ciao kernel and in another IPython."""

from __future__ import annotations

from typing import Any

from tests.helpers.kernels import Kernel

CELL = """\
%framework=tensorflow
%worker={n}
%name=$name
%args=--lr {lr:.2f} --json '{"a": 1}' --keep {nope}
import sys
print(sys.argv[1:], flush=True)
"""
WANTED = "['--lr', '0.50', '--json', '{\"a\": 1}', '--keep', '{nope}']\n"


def test_directives_take_the_values_of_the_notebook(kernel: Any) -> None:
    kernel.run("n, lr, name = 2, 0.5, 'tuned'")
    done = kernel.run(CELL)
    assert done.status == "ok"
    assert done.text.count(WANTED) == 2
    assert "{nope} stays as written: the notebook has no such variable.\n" in done.text
    assert kernel.run("print(_job.name, len(_job.replicas))").text == "tuned 2\n"
    assert "%worker=2\n" in kernel.run("print(_job.header)").text  # a rerun needs no notebook


def test_another_ipython_does_so_too(lasting: Kernel) -> None:
    lasting.run("n, lr, name = 2, 0.5, 'elsewhere'")
    done = lasting.run("%%ciao\n" + CELL)
    assert done.status == "ok"
    assert done.text.count(WANTED) == 2
