"""Variables go between SoS, Python and Ciao, by every magic that SoS has for it."""

from __future__ import annotations

import re
from typing import Any

import pytest

HTML = re.compile(r"<[^>]*>")


@pytest.fixture
def sos(shared: Any) -> Any:
    """The shared kernel; the next cell is Ciao's."""
    shared.ok("%use Ciao")
    return shared


def alone(sos: Any) -> None:
    """End the other language, which %sessioninfo would ask too."""
    sos.ok("%use SoS")
    sos.ok("%shutdown Python3")
    sos.ok("%use Ciao")


def shown(request: Any) -> str:
    """All that a cell shows as displays, without their HTML."""
    return HTML.sub(
        "", " ".join(c["data"].get("text/html", "") for c in request.of("display_data"))
    )


def test_get_and_put_carry_a_data_frame_both_ways(sos: Any) -> None:
    sos.ok("%use SoS\nimport pandas as pd\ndf = pd.DataFrame({'a': [1, 2]}, ['x', 'y'])")
    sos.ok("%use Ciao\n%get df\ntwice = df * 2")
    sos.ok("%put twice")
    assert "y  4" in sos.ok("%use SoS\nprint(twice)").text


def test_get_takes_variables_from_another_kernel(sos: Any) -> None:
    sos.ok("%use Python3\nfound = {'lr': 0.1, 'sizes': (64, 10)}")
    assert (
        "lr 0.1 (64, 10)"
        in sos.ok(
            "%use Ciao\n%get found --from Python3\nprint('lr', found['lr'], found['sizes'])"
        ).text
    )
    sos.ok("result = found['lr'] * 2")
    assert "is 0.2" in sos.ok("%use Python3\n%get result --from Ciao\nprint('is', result)").text


def test_put_sends_to_another_kernel_and_under_another_name(sos: Any) -> None:
    sos.ok("numbers = [1, 2, 3]")
    sos.ok("%put numbers --to Python3")
    assert "[1, 2, 3]" in sos.ok("%use Python3\nprint(numbers)").text
    sos.ok("%use Ciao\n%put numbers[1:] --as rest")
    assert "[2, 3]" in sos.ok("%use SoS\nprint(rest)").text


def test_with_runs_one_cell_in_ciao(sos: Any) -> None:
    sos.ok("%use SoS\nn = 3")
    sos.ok("%with Ciao --in n --out back\nback = n + 39")
    assert "42 SoS" in sos.ok("print(back, 'SoS')").text


def test_a_large_value_comes_whole(sos: Any) -> None:
    sos.ok("import os\nlarge = os.urandom(40_000_000)".join(["%use SoS\n", ""]))
    assert "40000000" in sos.ok("%use Ciao\n%get large\nprint(len(large))", 60).text
    sos.ok("%put large --as back", 60)
    assert "True" in sos.ok("%use SoS\nprint(back == large)").text


def test_a_job_reads_what_get_brought(sos: Any) -> None:
    sos.ok(
        "%use SoS\nimport numpy as np, pandas as pd\n"
        "df = pd.DataFrame({'a': [1, 2]})\narray = np.arange(6).reshape(2, 3)\nrate = 0.5"
    )
    sos.ok("%use Ciao\n%get df array rate")

    done = sos.ok(
        "%framework=tensorflow\n%worker=2\n%input=df array\n%input=rate\n"
        "import json, numpy as np, pandas as pd\n"
        "print('sums', pd.read_parquet('input/df.parquet').a.sum(),\n"
        "      np.load('input/array.npy').sum(), json.load(open('input/rate.json')))\n"
        "open('result.json', 'w').write('[3, 15]')\n"
    )

    assert done.text.count("sums 3 15 0.5") == 2
    sos.ok("import json\nresult = json.loads((_job.folder / 'result.json').read_text())")
    sos.ok("%put result")
    assert "[3, 15]" in sos.ok("%use SoS\nprint(result)").text


def test_expand_fills_in_values_of_ciao_and_of_sos(sos: Any) -> None:
    sos.ok("workers = 2")
    job = "%framework=tensorflow\n%worker=${workers}\nprint('here', f'{1 + 1}', flush=True)"
    assert sos.ok(f"%expand ${{ }} --in Ciao\n{job}").text.count("here 2\n") == 2
    sos.ok("%use SoS\nworkers = 1")
    assert sos.ok(f"%use Ciao\n%expand ${{ }}\n{job}").text.count("here 2\n") == 1


def test_preview_tells_type_size_and_beginning(sos: Any) -> None:
    sos.ok("import pandas as pd\ndf = pd.DataFrame({'a': range(1000)})\nmany = list(range(10_000))")

    done = sos.ok("%preview df many missing")

    assert "df: DataFrame of shape (1000, 1)" in shown(done)
    assert "many: list of length 10000" in shown(done)
    assert re.search(r"999 +999", done.text)
    assert "[0,\n 1,\n" in done.text
    assert "Unknown variable missing" in done.text
    assert len(done.text) < 10_000


def test_preview_takes_expressions_and_files(sos: Any) -> None:
    (sos.place.work / "many.csv").write_text("a\n1\n")
    sos.ok("many = {'b': [1, 2]}\nfine = 1")

    done = sos.ok("%preview fine+41 many['b'] \"fine - 1\" fine/0 many.csv")

    assert "fine+41: int" in shown(done)
    assert "42" in done.text
    assert "many['b']: list of length 2" in shown(done)
    assert "fine - 1: int" in shown(done)
    assert "fine/0 has no value: ZeroDivisionError: division by zero" in done.text
    assert "Unknown variable" not in done.text


def test_an_object_that_answers_no_question_spoils_nothing(sos: Any) -> None:
    alone(sos)
    sos.ok(
        "import numpy\nclass Closed:\n"
        "    def __getattr__(self, name): raise RuntimeError('not connected')\nclosed = Closed()"
    )

    assert re.search(r"numpy\d", shown(sos.ok("%sessioninfo")))
    assert "closed: Closed" in shown(sos.ok("%preview closed"))
    sos.ok("del closed")


def test_sessioninfo_names_the_versions(sos: Any) -> None:
    alone(sos)
    sos.ok("import numpy")
    text = shown(sos.ok("%sessioninfo"))
    assert re.search(r"Ciao\s+Kernelciao\s+LanguageCiao\s+ciao\d", text)
    assert re.search(r"Python3\.\d+\.\d+", text)
    assert re.search(r"numpy\d", text)


def test_cd_moves_the_ciao_kernel_too(sos: Any) -> None:
    (sos.place.work / "below").mkdir()
    sos.ok("%cd below")
    assert str(sos.place.work / "below") in sos.ok("import os\nprint(os.getcwd())").text
    sos.ok("%cd ..")


@pytest.mark.parametrize(
    ("code", "warning"),
    [
        ("%put missing", "%put cannot send missing: NameError: name 'missing' is not defined"),
        ("%put generator", "%put cannot send generator: TypeError"),
        ("%put own", "%put cannot send own: "),
    ],
)
def test_what_cannot_be_put_is_said(sos: Any, code: str, warning: str) -> None:
    sos.ok("generator = (i for i in [])\nclass Own: pass\nown = Own()")
    assert warning in sos.run(code).text


def test_put_sends_what_can_be_sent_and_names_the_rest(sos: Any) -> None:
    sos.ok("generator = (i for i in [])\nclass Own: pass\nown = Own()\nfine = [1]\nother = 2")

    done = sos.run("%put fine generator own missing other")

    for name in ("generator: TypeError", "own: AttributeError", "missing: NameError"):
        assert f"%put cannot send {name}" in done.text
    assert "got [1] 2" in sos.ok("%use SoS\nprint('got', fine, other)").text
    sos.ok("%use Ciao\nfine = [3]")
    assert "%put cannot send generator" in sos.run("%put generator fine --to Python3").text
    assert "got [3]" in sos.ok("%use Python3\nprint('got', fine)").text


def test_what_a_thread_displays_is_no_answer(sos: Any) -> None:
    sos.ok(
        "import threading\nfrom IPython.display import display\nfine = 5\n"
        "done = threading.Event()\n"
        "def loop():\n    while not done.wait(0.005):\n        display('beside')\n"
        "threading.Thread(target=loop, daemon=True).start()"
    )
    for number in range(4):
        sos.ok(f"%put fine --as fine{number}")
        assert "fine: int" in shown(sos.ok("%preview fine"))
    sos.ok("done.set()")
    assert "got 5 5 5 5" in sos.ok("%use SoS\nprint('got', fine0, fine1, fine2, fine3)").text


def test_two_kernels_of_ciao_exchange_values(sos: Any) -> None:
    sos.ok(
        "%use Second -k ciao -l Ciao\nimport pandas as pd\n"
        "labels = pd.Series([1, 2], ['a', 'b'], name='y')\n"
        "class Run: losses = [1]\nrun = Run()"
    )
    sos.ok("%use Ciao\n%get labels --from Second\nindex = labels.index")
    assert "y 3 ab" in sos.ok("print(labels.name, labels.sum(), ''.join(index))").text
    sos.ok("%put index --to Second")
    assert "True" in sos.ok("%use Second\nprint(index.equals(labels.index))").text
    sos.run("%use Ciao\n%get run.losses --from Second --as losses")  # SoS asks for losses too
    assert "[1]" in sos.ok("print(losses)").text
    done = sos.run("%get run.losses --from Second")
    assert "%get cannot create run.losses in Ciao: rename it by --as NAME" in done.text
    sos.ok("%use SoS")
    sos.ok("%shutdown Second")


def test_what_cannot_be_got_is_said(sos: Any) -> None:
    (sos.place.work / "sub").mkdir()
    (sos.place.work / "sub" / "only_there.py").write_text("class Thing: pass\n")
    sos.ok(
        "%use SoS\nimport sys\nsys.path.insert(0, 'sub')\n"
        "import only_there\nthing = only_there.Thing()\nopened = open('sub/only_there.py')\nn = 1"
    )

    done = sos.run("%use Ciao\n%get opened thing n\nprint('n', n)")

    assert "%get cannot send opened: " in done.text
    assert "WARNING" not in str(done.of("display_data"))  # no record of the log beside it
    assert "%get cannot create thing in Ciao: ModuleNotFoundError" in done.text
    assert "n 1" in done.text


def test_nothing_is_left_in_the_users_namespace(sos: Any) -> None:
    alone(sos)
    sos.ok("%use SoS\nbrought = 1")
    sos.ok("%use Ciao\nbefore = set(globals())\n'mine'")
    sos.ok("%get brought")
    for code in ("%put brought", "%preview brought", "%sessioninfo", "%expand --in Ciao\n'mine'"):
        sos.ok(code)
    done = sos.ok("print(sorted(x for x in set(globals()) - before if not x.startswith('_')))")
    assert "['before', 'brought']" in done.text
    assert "the last mine" in sos.ok("%get brought\nprint('the last', _)").text
