"""Variables of plain cells in a job, by the kernel and by ``%%ciao`` in another IPython."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.kernels import Kernel, Place

READ = "import json\nprint('read', json.load(open('input/sizes.json')))\n"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A ciao kernel for the tests of this file."""
    kernel = Kernel(Place(tmp_path_factory.mktemp("place")))
    yield kernel
    kernel.shutdown(now=True)


@pytest.fixture
def kernel(own: Kernel) -> Kernel:
    """It, with no variable of a test before."""
    assert own.run("%reset -f").status == "ok"
    return own


@pytest.mark.stands_for("oldest")
def test_a_job_reads_a_variable_of_a_plain_cell(kernel: Kernel) -> None:
    kernel.run("sizes = {'hidden': [64, 10]}")

    done = kernel.run("%framework=tensorflow\n%worker=2\n%input=sizes\n" + READ)

    assert done.status == "ok", done.text
    assert done.text.count("read {'hidden': [64, 10]}") == 2
    assert "included, because %input names them: input/sizes.json" in done.text


def test_a_job_gets_the_value_of_the_moment(kernel: Kernel) -> None:
    job = "%framework=tensorflow\n%worker=1\n%input=sizes\n" + READ
    kernel.run("sizes = 1")
    assert "read 1" in kernel.run(job).text

    kernel.run("sizes = 2")

    assert "read 2" in kernel.run(job).text


def test_an_unknown_variable_is_an_error_with_its_line(kernel: Kernel) -> None:
    before = kernel.place.job_folders()
    kernel.run("sizes = 1")

    done = kernel.run("%framework=tensorflow\n%worker=1\n%input=size\nprint()\n")

    assert done.error == "DirectiveError"
    shown = "\n".join(done.reply["content"]["traceback"])
    assert "line 3: %input=size" in shown
    assert "Did you mean sizes?" in shown
    assert kernel.place.job_folders() == before


@pytest.mark.stands_for("oldest")
def test_the_extension_knows_the_variables_too(lasting: Kernel) -> None:
    lasting.run("sizes = [1, 2]")

    done = lasting.run("%%ciao\n%framework=tensorflow\n%worker=1\n%input=sizes\n" + READ)

    assert done.status == "ok", done.text
    assert "read [1, 2]" in done.text


@pytest.mark.stands_for("oldest")
def test_tab_completes_a_variable(kernel: Kernel) -> None:
    kernel.run("training_data = 1")
    code = "%framework=tensorflow\n%input=training_d"

    reply = kernel.ask("complete_request", {"code": code, "cursor_pos": len(code)})

    assert reply["matches"] == ["training_data"]


def test_tab_offers_what_can_travel(kernel: Kernel) -> None:
    kernel.run(
        "import json\nclass Closed:\n"
        "    def __getattr__(self, name): raise RuntimeError('not connected')\n"
        "closed, rates, sizes, _own = Closed(), [0.1], {}, 1"
    )
    kernel.run("rates")  # IPython's Out holds it
    code = "%framework=tensorflow\n%input=sizes,"

    reply = kernel.ask("complete_request", {"code": code, "cursor_pos": len(code)})
    assert reply["matches"] == ["Closed", "rates"]  # a class is delivered by its source
    assert reply["cursor_start"] == reply["cursor_end"] == len(code)

    code = code.removesuffix("sizes,")
    reply = kernel.ask("complete_request", {"code": code, "cursor_pos": len(code)})
    assert reply["matches"] == ["Closed", "rates", "sizes"]


def test_a_file_named_as_the_folder_is_refused_with_the_line(kernel: Kernel) -> None:
    before = kernel.place.job_folders()
    (kernel.place.work / "input").write_text("1")
    kernel.run("sizes = 1")
    header = "%framework=tensorflow\n%worker=1\n%files=input\n%input=sizes\n"

    done = kernel.run(header + "print()\n")

    assert done.error == "DirectiveError"
    shown = "\n".join(done.reply["content"]["traceback"])
    assert "line 4: %input=sizes" in shown
    assert "%files includes a file named input, but %input creates a folder of that name." in shown
    assert kernel.place.job_folders() == before


CODE = """\
import math
from collections import OrderedDict as Ordered
import beside
scale, weights = 3, Ordered()

class Layer:
    size: int = 2

class Model(Layer):
    def area(self):
        return scale * self.size + beside.more()

def helper(n):
    return math.floor(n) + Model().area()
"""


def test_a_job_imports_what_the_notebook_has_defined(kernel: Kernel) -> None:
    (kernel.place.work / "beside.py").write_text("def more(): return 100\n")
    kernel.run(CODE)

    done = kernel.run(
        "%framework=tensorflow\n%worker=2\n%input=helper Model lr\n"
        "from ciao_input import Model, helper\nprint('got', helper(1.5), Model().size)\n"
    )
    assert done.error == "DirectiveError"  # there is no lr yet
    kernel.run("lr = (0.5, 1)")
    done = kernel.run(
        "%framework=tensorflow\n%worker=2\n%input=helper Model lr\n"
        "from ciao_input import Model, helper, lr\nprint('got', helper(1.5), Model().size, lr)\n"
    )

    assert done.status == "ok", done.text
    assert done.text.count("got 107 2 (0.5, 1)\n") == 2
    assert "included, because the code imports them: beside.py" in done.text
    assert "included, because %input names them: ciao_input.py, input/lr.json" in done.text


def test_an_error_in_it_shows_its_line(kernel: Kernel) -> None:
    kernel.run("def bad(n):\n    return n / 0\n")
    done = kernel.run("%framework=tensorflow\n%input=bad\nfrom ciao_input import bad\nbad(1)\n")
    assert done.error == "JobFailed"
    assert "return n / 0" in str(done.of("error"))


def test_a_name_that_only_the_notebook_has_is_explained(kernel: Kernel) -> None:
    kernel.run("rate = 0.5")
    done = kernel.run("%framework=tensorflow\nprint(rate)\n")
    assert done.error == "JobFailed"
    assert "add %input=rate and `from ciao_input import rate`." in str(done.of("error"))


def test_code_with_lines_of_ipython_is_refused_before_the_start(kernel: Kernel) -> None:
    before = kernel.place.job_folders()
    kernel.run("def listed():\n    !ls\n\ndef shown(x):\n    display(x)\n")
    for name, what in (("listed", "an IPython command"), ("shown", "IPython's display")):
        done = kernel.run(f"%framework=tensorflow\n%input={name}\nfrom ciao_input import {name}\n")
        assert done.error == "DirectiveError"
        shown = "\n".join(done.reply["content"]["traceback"])
        assert f"%input cannot take {name}: {name} uses {what}" in shown
    assert kernel.place.job_folders() == before


def test_a_display_that_a_cell_imports_comes_along(kernel: Kernel) -> None:
    kernel.run("from IPython.display import display\ndef shown(x):\n    display(x)\n")
    done = kernel.run(
        "%framework=tensorflow\n%input=shown\nfrom ciao_input import shown\nshown(7)\n"
    )
    assert done.status == "ok", done.text
    assert "7\n" in done.text
