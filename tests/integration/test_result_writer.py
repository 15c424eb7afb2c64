"""Which processes of a replica write the values of ``%output``: real ones, with the real writer."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ciao_kernel.delivery import site_folder
from ciao_kernel.delivery.output import results, values_message
from ciao_kernel.delivery.output.large_values import LargeValues
from ciao_kernel.delivery.output.result_writer import FILES, FROM, MOST, NAMES, PROGRAM, TARGET
from ciao_kernel.model import JobSpec, Source, SourceFile

PROGRAM_TEXT = "import sys\nvalue = [len(sys.argv), {'é': None}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A delivered program with the writer beside it, and the folder of its values."""
    spec = JobSpec("python", outputs=("value",))
    for file in results.with_files(Source(SourceFile("program.py", b"")), spec).own:
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.data or b"")
    (tmp_path / "values").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM_TEXT)
    return tmp_path


def run(folder: Path, *words: str, program: str = "", target: str = "", **env: str) -> str:
    """Run Python as in a replica; return what it writes."""
    given = {
        **os.environ,
        NAMES: "value",
        PROGRAM: program or str(folder / "program.py"),
        TARGET: target or str(folder / "values"),
        "PYTHONPATH": str(folder / site_folder.FOLDER),
        **env,
    }
    argv = [sys.executable, "-u", *words]
    done = subprocess.run(argv, env=given, capture_output=True, text=True, check=False, cwd=folder)
    return done.stdout + done.stderr


def value(folder: Path) -> object:
    found = results.Results(folder / "values")
    return found["value"] if found.arrived else None


def test_a_program_and_its_arguments(folder: Path) -> None:
    assert run(folder, str(folder / "program.py"), "--lr", "1") == ""
    assert value(folder) == [3, {"é": None}]


def test_a_module_of_a_package(folder: Path) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "train.py").write_text(PROGRAM_TEXT)
    assert run(folder, "-m", "pkg.train", program="-m\npkg.train") == ""
    assert value(folder) == [1, {"é": None}]


@pytest.mark.parametrize(
    ("env", "arrives"),
    [
        ({"RANK": "1"}, True),  # of the replica: a PyTorchJob's own variable
        ({"RANK": "0", "LOCAL_RANK": "0"}, True),
        ({"RANK": "2", "LOCAL_RANK": "0"}, True),  # of another replica
        ({"RANK": "1", "LOCAL_RANK": "1"}, False),
        ({"OMPI_COMM_WORLD_RANK": "1"}, False),
        ({"OMPI_COMM_WORLD_RANK": "0"}, True),
    ],
)
def test_of_several_processes_of_a_replica_the_first_counts(
    folder: Path, env: dict[str, str], arrives: bool
) -> None:
    assert run(folder, str(folder / "program.py"), **env) == ""
    assert (value(folder) is not None) is arrives


def test_other_processes_write_nothing(folder: Path) -> None:
    (folder / "other.py").write_text("value = 'of another program'\n")
    assert run(folder, str(folder / "other.py")) == ""
    assert value(folder) is None
    (folder / "program.py").write_text(
        "import multiprocessing, os, subprocess, sys\n"
        "value = 'mine'\n"
        "def work():\n    pass\n"
        "if __name__ == '__main__':\n"
        "    subprocess.run([sys.executable, 'other.py'], check=True)\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join()\n"
        "    if not (pid := os.fork()):\n        value = 'of a fork'; sys.exit()\n"
        "    os.waitpid(pid, 0)\n"
        "    print(os.listdir('values'))\n"
    )
    assert run(folder, str(folder / "program.py")) == "[]\n"
    assert value(folder) == "mine"


def test_the_images_own_sitecustomize_is_imported_too(folder: Path) -> None:
    (folder / "image").mkdir()
    (folder / "image" / "sitecustomize.py").write_text("print('of the image')\n")
    path = os.pathsep.join([str(folder / site_folder.FOLDER), str(folder / "image")])
    assert run(folder, str(folder / "program.py"), PYTHONPATH=path) == "of the image\n"
    assert value(folder) == [1, {"é": None}]


def test_a_traceback_stays_as_it_is(folder: Path) -> None:
    (folder / "program.py").write_text("value = 1\nraise ValueError('boom')\n")
    text = run(folder, str(folder / "program.py"))
    assert text.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{folder / "program.py"}", line 2, in <module>',
        "    raise ValueError('boom')",
        "ValueError: boom",
    ]
    assert value(folder) == 1


def test_a_value_that_the_disk_does_not_take_leaves_the_others(folder: Path) -> None:
    (folder / "program.py").write_text(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "value, last = 'x' * 5000, 'ok'\n"
    )
    assert run(folder, str(folder / "program.py"), **{NAMES: "value last"}) == ""
    found = results.Results(folder / "values")
    assert dict(found) == {"last": "ok"}
    assert found.fault("value") == (
        "value has 5,002 bytes, and its file could not be written: File too large."
    )
    assert {path.name for path in (folder / "values").iterdir()} == {".index.json", "last.json"}


def test_a_pod_gives_back_what_its_message_can_hold(folder: Path, tmp_path: Path) -> None:
    (folder / "program.py").write_text("small = 'ok'\nvalue = 'x' * 5000\nempty = ''\n")
    message = folder / "message"
    run(folder, str(folder / "program.py"), target=str(message), **{NAMES: "value small empty"})
    assert message.stat().st_size <= 4096
    assert values_message.unpack(message.read_text(), tmp_path / "unpacked")
    found = results.Results(tmp_path / "unpacked")
    assert dict(found) == {"small": "ok", "empty": ""}
    assert found.fault("value") == (
        "value has 5,002 bytes, and a pod gives back 3,000 bytes at most; write it to a file that "
        "%output names, or that is in a %volume."
    )


TABLES = """\
import sys
sys.modules["pyarrow"] = None
import pandas as pd
rows = pd.DataFrame({"city": ["01", "NA"], "year": [3, 4], "size": [0.5, 1.5]})
one, two = rows.set_index("city")["size"], rows.set_index(["city", "year"])
unnamed = pd.Series([1, 2])
lost = pd.DataFrame({"a": [1, "x"]})
curve = [(0, 0.5), (1, 0.25)]
"""


def test_tables_without_pyarrow_and_tuples_come_back_as_they_were(
    folder: Path, tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    (folder / "program.py").write_text(TABLES)
    names = {NAMES: "one two curve lost unnamed"}
    assert run(folder, str(folder / "program.py"), **names) == ""
    assert run(folder, str(folder / "program.py"), target=str(folder / "message"), **names) == ""
    assert values_message.unpack((folder / "message").read_text(), tmp_path / "unpacked")
    rows = pandas.DataFrame({"city": ["01", "NA"], "year": [3, 4], "size": [0.5, 1.5]})
    expected = {"one": rows.set_index("city")["size"], "two": rows.set_index(["city", "year"])}
    for place in (folder / "values", tmp_path / "unpacked"):
        found = results.Results(place)
        pandas.testing.assert_series_equal(found["one"], expected["one"])
        pandas.testing.assert_frame_equal(found["two"], expected["two"])
        assert found["curve"] == [(0, 0.5), (1, 0.25)]
        assert found["unnamed"].name is None
        assert found.fault("lost") == (
            "lost, a DataFrame, cannot come back: without pyarrow it would be a CSV file, which "
            "does not keep the values of 'a', which are not all text."
        )


CHANGED = """\
import pandas as pd
keys = pd.DataFrame({"x": [{"a": 1}, {"b": 2}]})
empty = pd.DataFrame({"x": [{}, {"b": 2}]})
large = pd.Series([2**60 + 1, None], dtype=object)
raw = pd.DataFrame({"x": [b"a", "a"]})
kept = pd.DataFrame({"x": [{"a": 1}, {"a": 2}]})
"""


def test_a_table_that_parquet_would_change_does_not_come_back(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (folder / "program.py").write_text(CHANGED)
    names = {NAMES: "keys empty large raw kept"}
    assert run(folder, str(folder / "program.py"), **names) == ""
    assert run(folder, str(folder / "program.py"), target=str(folder / "message"), **names) == ""
    assert values_message.unpack((folder / "message").read_text(), tmp_path / "unpacked")
    for place, of_pod in ((folder / "values", False), (tmp_path / "unpacked", True)):
        found = results.Results(place, of_pod=of_pod)
        assert list(found) == ["kept"]
        assert found["kept"]["x"].tolist() == [{"a": 1}, {"a": 2}]
        assert found.fault("keys") == (
            "keys, a DataFrame, cannot come back: a Parquet file changes the column 'x': {'a': 1} "
            "becomes {'a': 1.0, 'b': None}."
        )
        assert "{} becomes {'b': None}" in found.fault("empty")
        assert "becomes 1.152921504606847e+18" in found.fault("large")
        assert "'a' becomes b'a'" in found.fault("raw")


def test_what_has_no_name_has_none_again(folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    (folder / "program.py").write_text(
        "import pandas as pd\nvalue = pd.Series([1, 2])\n"
        "pairs = pd.MultiIndex.from_tuples([(1, 2)], names=['a', None])\n"
    )
    assert run(folder, str(folder / "program.py"), **{NAMES: "value pairs"}) == ""
    found = results.Results(folder / "values", of_pod=False)
    pandas.testing.assert_series_equal(found["value"], pandas.Series([1, 2]))
    assert list(found["pairs"].names) == ["a", None]


def test_a_type_that_a_file_loses_is_said(folder: Path, tmp_path: Path) -> None:
    """After a training, a plain value is more than none."""
    (folder / "program.py").write_text(
        "import collections, enum\nclass Level(enum.IntEnum):\n    LOW = 1\n"
        "value = {'a': [collections.defaultdict(list, b=[1])]}\n"
        "level, counts = Level.LOW, collections.Counter('ab')\n"
        "class Words(collections.Counter): pass\nwords = Words('ab')\n"
    )
    names = {NAMES: "value level counts words"}
    assert run(folder, str(folder / "program.py"), **names) == ""
    assert run(folder, str(folder / "program.py"), target=str(folder / "message"), **names) == ""
    assert values_message.unpack((folder / "message").read_text(), tmp_path / "unpacked")
    for place in (folder / "values", tmp_path / "unpacked"):
        found = results.Results(place)
        counts = Counter("ab")
        plain = {"value": {"a": [{"b": [1]}]}, "level": 1, "counts": counts, "words": counts}
        assert dict(found) == plain
        assert found.note("value") == (
            "value came back with dict in place of defaultdict: files keep plain types."
        )
        assert "int in place of Level" in found.note("level")
        assert found.note("counts") == found.note("missing") == ""
        assert "Counter in place of Words" in found.note("words")
        assert isinstance(found["counts"], Counter)
        assert isinstance(found["words"], Counter)


def test_a_message_has_no_room_for_layouts_of_any_size(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (folder / "program.py").write_text(
        "import sys\nsys.modules['pyarrow'] = None\nimport pandas as pd\nsmall = 1\n"
        "mixed = [(1,) if n % 2 else [1] for n in range(200)]\n"
        "wide = pd.DataFrame([[n if n % 2 else 'x' for n in range(200)]])\n"
    )
    names = {NAMES: "small mixed wide"}
    run(folder, str(folder / "program.py"), target=str(folder / "message"), **names)
    assert values_message.unpack((folder / "message").read_text(), tmp_path / "unpacked")
    found = results.Results(tmp_path / "unpacked")
    assert found["small"] == 1
    assert found["mixed"] == [[1]] * 200
    assert "tables with so many columns" in found.fault("wide")


@pytest.mark.parametrize("rows", [1, 3000])
def test_a_message_that_has_no_room_for_all_layouts_has_some(
    folder: Path, tmp_path: Path, rows: int
) -> None:
    pytest.importorskip("pandas")
    (folder / "program.py").write_text(
        "import sys\nsys.modules['pyarrow'] = None\nimport pandas as pd\nsmall = 1\n"
        "columns = {f'column_{n}': [(1, 'x', 0.5)[n % 3]] for n in range(18)}\n"
        f"rows = pd.concat([pd.DataFrame(columns)] * {rows}, ignore_index=True)\n"
        "for n in range(12): globals()[f'table{n}'] = rows\n"
    )
    tables = [f"table{n}" for n in range(12)]
    env = {FILES: str(folder / ".ciao-values"), MOST: "90000000", FROM: "", "CIAO_REPLICA": ""}
    names = {NAMES: " ".join(["small", *tables])}
    run(folder, str(folder / "program.py"), target=str(folder / "message"), **names, **env)
    text = (folder / "message").read_text()
    assert len(text) <= 4096
    assert values_message.unpack(text, tmp_path / "unpacked")
    assert results.Results(tmp_path / "unpacked")["small"] == 1
    come = re.findall(r'"(table[0-9]+)":{[^{}]*"layout":', text)
    assert come
    assert come == re.findall(r'"(table[0-9]+)":{[^{}]*"layout":{[^{}]*},"d', text)


@pytest.mark.parametrize("replica", ["worker-0", "worker-1"])
def test_what_a_message_cannot_hold_becomes_files_of_the_deciding_replica(
    folder: Path, tmp_path: Path, replica: str
) -> None:
    (folder / "program.py").write_text("small = 'ok'\nvalue = 'x' * 5000\nhuge = 'y' * 9000\n")
    message, files = folder / "message", folder / ".ciao-values"
    files.mkdir()
    (files / "value.npy").write_text("of an earlier attempt")
    env = {FILES: str(files), MOST: "6000", FROM: "worker-0", "CIAO_REPLICA": replica}
    names = {NAMES: "value small huge"}
    assert run(folder, str(folder / "program.py"), target=str(message), **names, **env) == ""
    place = tmp_path / "unpacked"
    assert values_message.unpack(message.read_text(), place)
    found = results.Results(place)
    assert found["small"] == "ok"
    assert values_message.names_files(message.read_text()) is (replica == "worker-0")
    if replica == "worker-1":
        assert not files.exists()
        assert "a pod gives back 3,000 bytes at most" in found.fault("value")
        return
    assert found.fault("huge") == (
        "huge has 9,002 bytes, and all values that come back as files have 6.0 kB at most here."
    )
    (file,) = files.iterdir()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    LargeValues(place).put(f".ciao-values/{file.name}", file, digest)
    assert dict(results.Results(place)) == {"value": "x" * 5000, "small": "ok"}


def test_a_table_travels_plain_and_packed_and_is_compressed_on_this_machine(
    folder: Path, tmp_path: Path
) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    (folder / "program.py").write_text(
        "import pandas as pd\nvalue = pd.DataFrame({'part': ['train', 'test'] * 500})\n"
    )
    message, place = folder / "message", tmp_path / "unpacked"
    tables = []
    for target in (message, folder / "values"):
        assert run(folder, str(folder / "program.py"), target=str(target)) == ""
    assert values_message.unpack(message.read_text(), place)
    for files in (place, folder / "values"):
        column = parquet.read_metadata(files / "value.parquet").row_group(0).column(0)
        tables.append((column.compression, results.Results(files, of_pod=files == place)["value"]))
    assert [compression for compression, _ in tables] == ["UNCOMPRESSED", "SNAPPY"]
    pandas.testing.assert_frame_equal(tables[0][1], tables[1][1])


@pytest.mark.parametrize("count", [30, 50])
def test_many_small_values_come_whether_or_not_larger_ones_would_be_files(
    folder: Path, tmp_path: Path, count: int
) -> None:
    """The digests of files take more room in the message than small values do."""
    names = [f"v{number}" for number in range(count)]
    text = "".join(f"{name} = {number}\n" for number, name in enumerate(names))
    (folder / "program.py").write_text(text)
    env = {NAMES: " ".join(names), MOST: "6000", FROM: "worker-0", "CIAO_REPLICA": "worker-0"}
    came = []
    for number, files in enumerate(("", str(folder / ".ciao-values"))):
        message, place = folder / f"message-{number}", tmp_path / f"unpacked-{number}"
        program = str(folder / "program.py")
        assert run(folder, program, target=str(message), **env, **{FILES: files}) == ""
        assert values_message.unpack(message.read_text(), place)
        came.append(dict(results.Results(place)))
    assert came[1] == came[0]
    assert len(came[0]) == count
    assert not (folder / ".ciao-values").exists()


def absent(folder: Path, code: str, names: str = "value", target: str = "") -> results.Results:
    (folder / "program.py").write_text(code)
    run(folder, str(folder / "program.py"), target=target, **{NAMES: names})
    return results.Results(folder / "values")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("values = 1", "value did not exist when the program ended. Did you mean values?"),
        ("import os as values", "value did not exist when the program ended."),
        (
            "import os\nos.mkdir('value')\nos.chdir('/')",
            "there is a folder value, and no variable: write `%output=value/`.",
        ),
        (
            "open('value', 'w').close()",
            "there is a file value, and no variable: write `%output=./value`.",
        ),
        (
            "values = 1\nimport no_such_module",
            "value did not exist when the program ended by ModuleNotFoundError.",
        ),
        (
            "values = 1\nraise SystemExit(3)",
            "value did not exist when the program ended. Did you mean values?",
        ),
    ],
)
def test_of_a_missing_variable_it_is_told_what_the_program_had(
    folder: Path, code: str, told: str
) -> None:
    found = absent(folder, code)
    assert found.arrived
    assert not found.given
    assert found.fault("value") == told


def test_values_of_a_child_that_runs_the_program_stay(folder: Path) -> None:
    found = absent(
        folder,
        "import os, subprocess, sys\n"
        "if 'CHILD' in os.environ:\n    value = 0.5\n"
        "else:\n    words = [sys.executable, os.path.abspath(__file__)]\n"
        "    subprocess.run(words, env={**os.environ, 'CHILD': '1'}, check=True)\n",
    )
    assert found["value"] == 0.5


@pytest.mark.parametrize(
    "code",
    [
        "class Proxy:\n    __class__ = property(lambda self: 1 / 0)\nproxy = Proxy()\n",
        "globals()[1] = 2\n",
        "class Odd:\n    __module__ = None\nother = Odd()\n",
        "open('difflib.py', 'w').write('raise SystemExit(3)')\n",
    ],
)
def test_what_only_explains_costs_no_value(folder: Path, code: str) -> None:
    found = absent(folder, f"value = 3\n{code}", "value other")
    assert found["value"] == 3
    assert "other" in found.fault("other")


def test_a_pod_tells_it_in_the_room_that_is_left(folder: Path, tmp_path: Path) -> None:
    message, code = folder / "message", "values, other = 1, 'x' * {}\n"
    absent(folder, code.format(10), "value other", str(message))
    assert values_message.unpack(message.read_text(), tmp_path / "some")
    assert results.Results(tmp_path / "some").fault("value").endswith("Did you mean values?")
    absent(folder, code.format(2960), "value other", str(message))
    assert message.stat().st_size <= 4096
    assert values_message.unpack(message.read_text(), tmp_path / "full")
    full = results.Results(tmp_path / "full")
    assert len(full["other"]) == 2960
    assert full.fault("value") == "value did not exist when the program ended."


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("raise ValueError\n", None),  # the end of the log is the message then
        ("raise SystemExit(2)\n", None),
        ("open('message', 'w').write('mine')\n", "mine"),
    ],
)
def test_a_program_without_values_keeps_its_own_message(
    folder: Path, code: str, left: str | None
) -> None:
    message = folder / "message"
    absent(folder, code, target=str(message))
    assert (message.read_text() if message.exists() else None) == left


def test_a_model_has_a_remedy(folder: Path) -> None:
    for library, name in (("sklearn", "BaseEstimator"), ("torch", "Module")):
        (folder / f"{library}.py").write_text(f"class {name}: pass\n")
    found = absent(
        folder,
        "import sklearn, torch\nclass Own(torch.Module): pass\n"
        "class Tree(sklearn.BaseEstimator): pass\n"
        "net, clf, deep = Own(), Tree(), [open(__file__)]\n",
        "net clf deep",
    )
    assert found.fault("clf") == (
        "clf, a Tree, cannot come back: no file format stores a Tree: save it by "
        "`joblib.dump(clf, 'clf.joblib')`, and write `%output=clf.joblib`."
    )
    assert "`torch.save(net.state_dict(), 'net.pt')`" in found.fault("net")
    assert found.fault("deep").endswith("no file format stores a TextIOWrapper.")
