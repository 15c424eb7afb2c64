"""Values of a job's program in plain cells (``%output``), by a real kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.kernels import Kernel, Place

HEADER = "%framework=python\n%worker=2\n"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A ciao kernel for the tests of this file."""
    kernel = Kernel(Place(tmp_path_factory.mktemp("place")))
    yield kernel
    kernel.shutdown(now=True)


def test_a_last_line_that_only_a_plain_cell_shows_has_a_note(kernel: Any) -> None:
    done = kernel.run(HEADER + "df = 17\ndf\n")
    assert done.status == "ok", done.text
    note = "a job is a program, and does not show its last line `df`: write `print(df)`. "
    assert done.text.startswith(
        f"{note}%output=df brings back a number, text, list, array or table.\n"
    )
    plain = kernel.run("df = 17\ndf\n")
    assert plain.text == ""
    assert [one["data"]["text/plain"] for one in plain.of("execute_result")] == ["17"]


def test_values_come_back_with_their_types(kernel: Any) -> None:
    pytest.importorskip("numpy")
    done = kernel.run(
        HEADER + "%output=metrics, weights\n"
        "import numpy, os\n"
        "metrics = {'loss': numpy.float32(0.25), 'replica': os.environ['CIAO_REPLICA']}\n"
        "weights = numpy.arange(6.0).reshape(2, 3)\n"
    )
    assert done.status == "ok", done.text
    assert "brought back from worker-0: metrics, weights (_job.result, or the files in" in done.text
    assert kernel.run("print(_job.result['metrics'])").text == (
        "{'loss': 0.25, 'replica': 'worker-0'}\n"
    )
    shown = kernel.run("w = _job.result['weights']; print(type(w).__name__, w.sum(), w.shape)")
    assert shown.text == "ndarray 15.0 (2, 3)\n"
    assert kernel.run("print(_job.result, len(_job.result))").text == (
        "<results: metrics={'loss': 0.25, 'replica': 'worker-0'}, weights=float64 (2, 3)> 2\n"
    )
    name = kernel.run("print(_job.name)").text.strip()
    again = kernel.run(f"import ciao_kernel as ciao; print(ciao.job('{name}').result['metrics'])")
    assert again.text == "{'loss': 0.25, 'replica': 'worker-0'}\n"


def test_the_results_are_shown_short_escaped_and_without_secrets(kernel: Any) -> None:
    pytest.importorskip("pyarrow")
    done = kernel.run(
        HEADER + "%output=table token passwords settings name raw many absent\n"
        "import pandas\n"
        "table = pandas.DataFrame({'a': [1, 2, 3], 'b': ['x', 'y', 'z']})\n"
        "token = 's3cret1 horse'\n"
        "passwords = ['s3cret3', 's3cret4']\n"
        "settings = {'HF_TOKEN': 's3cret2', 'rate': 0.5}\n"
        "name = '<b>\\u202e'\n"
        "raw = bytes(2000)\n"
        "many = list(range(50_000))\n"
    )
    assert done.status == "ok", done.text
    text = kernel.run("print(_job.result)").text
    html = kernel.run("_job.result").of("execute_result")[0]["data"]["text/html"]
    for shown in (text, html):
        assert "3 rows (a, b)" in shown
        assert "s3cret" not in shown
        assert "horse" not in shown
        assert "0.5" in shown
        assert "2.0 kB" in shown
        assert "\u202e" not in shown
        assert len(shown) < 1500
    assert "name='<b>\\u202e'" in text
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert "absent did not exist when the program ended." in html
    assert kernel.run("print(_job.result['token'])").text == "s3cret1 horse\n"


def test_a_failed_program_gives_what_it_has_and_the_rest_is_explained(kernel: Any) -> None:
    done = kernel.run(
        HEADER + "%output=step absent\n%output=file\n"
        "step = 3\nfile = open(__file__)\nraise ValueError('boom')\n"
    )
    assert done.status == "error"
    assert "brought back from worker-" in done.text
    assert "%output: absent did not exist when the program ended by ValueError." in done.text
    assert (
        "%output: file, a TextIOWrapper, cannot come back: no file format stores a TextIOWrapper."
        in done.text
    )
    assert kernel.run("print(_job.result['step'])").text == "3\n"
    error = kernel.run("_job.result['absent']")
    assert error.error == "KeyError"
    assert "absent did not exist when the program ended" in error.of("error")[0]["evalue"]
    other = kernel.run("_job.result['loss']").of("error")[0]["evalue"]
    assert "loss was not asked for: %output=step absent file loss." in other


@pytest.mark.second("packages")
def test_of_several_processes_of_torchrun_the_first_gives_its_values(kernel: Any) -> None:
    pytest.importorskip("torch")
    # The launcher has variables of its own with two of these names.
    done = kernel.run(
        "%framework=pytorch\n%master=1\n%nprocPerNode=2\n%output=folder processes index\n"
        "import os\nfolder = processes = index = 'of rank ' + os.environ['RANK']\nprint('hello')\n",
        240,
    )
    assert done.status == "ok", done.text
    assert sorted(re.findall(r"\[(\d)\] hello", done.text)) == ["0", "1"]
    assert kernel.run("print(set(_job.result.values()), len(_job.result))").text == (
        "{'of rank 0'} 3\n"
    )


def test_values_of_a_failed_try_are_not_those_of_the_job(kernel: Any) -> None:
    done = kernel.run(
        "%framework=python\n%worker=1\n%restartPolicy=OnFailure\n%output=metrics\n"
        "import os\n"
        "if not os.path.exists('again'):\n"
        "    open('again', 'w').close()\n    metrics = 'of the first try'\n    raise ValueError\n"
    )
    assert done.status == "ok", done.text
    assert "no values came back for %output" in done.text


def test_a_program_that_is_killed_gives_nothing_and_the_cell_says_so(kernel: Any) -> None:
    done = kernel.run(HEADER + "%output=step\nimport os\nstep = 3\nos._exit(0)\n")
    assert done.status == "ok"
    assert (
        "no values came back for %output: when the program ended it had no variable step, it "
        "ended by a signal or os._exit, or its Python is older than 3.8.\n"
    ) in done.text
    assert kernel.run("print(_job.result)").text == "<results: none>\n"


def test_files_are_in_the_folder_of_the_job_and_the_cell_names_them(kernel: Any) -> None:
    done = kernel.run(
        HEADER + "%output\n%output=log.csv absent/* metrics\n"
        "import os\n"
        "place = os.environ['CIAO_OUTPUT']\n"
        "assert os.environ['SM_MODEL_DIR'] == place\n"
        "open(place + '/net.pt', 'wb').write(bytes(1_200_000))\n"
        "open('log.csv', 'w').write('a')\n"
        "metrics = 3\n"
    )
    assert done.status == "ok", done.text
    assert "files of %output: log.csv (1 byte), output/net.pt (1.2 MB), in " in done.text
    assert "%output: no file matches absent/*." in done.text
    shown = kernel.run(
        "import os\nprint(os.listdir(_job.folder / 'output'), _job.result['metrics'])"
    )
    assert shown.text == "['net.pt'] 3\n"
    name = kernel.run("print(_job.name)").text.strip()
    fetched = kernel.run(f"%ciao fetch {name} log.csv")
    assert "files of the given paths: log.csv (1 byte), in " in fetched.text
    copied = kernel.run(f"%ciao cp {name}/worker-0:output copied")
    assert copied.text == "copied 1 file, 1.2 MB\n"
    kernel.run("open('back.txt', 'w').write('back')")
    kernel.run(f"%ciao cp back.txt {name}/worker-0:in/")
    read = kernel.run(
        "print((_job.folder / 'in/back.txt').read_text(), os.path.getsize('copied/net.pt'))"
    )
    assert read.text == "back 1200000\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%output=../model/", "a path inside the program's folder, so without '..'"),
        ("%output\n%volume=tmp:output", "the volume tmp:output is there"),
        ("%output=./checkpoint/a.pt\n%checkpoint", "%checkpoint keeps the folder checkpoint"),
        ("%output=", "names of the program's variables"),
        ("%output=a\n%cleanPolicy=all", "cleanPolicy=all removes the files of the job"),
    ],
)
def test_what_cannot_come_back_is_refused_before_anything_runs(
    kernel: Any, line: str, words: str
) -> None:
    done = kernel.run(HEADER + line + "\nprint('ran')\n")
    assert done.status == "error"
    assert words in done.text + str(done.of("error"))
    assert "ran" not in done.text
