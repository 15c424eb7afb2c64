"""Markers in the logs of warm replicas, and what a program sets before its imports."""

from __future__ import annotations

import ast
import io
import sys
import tarfile
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import pytest

from ciao_kernel.delivery.inspection import process_state
from ciao_kernel.delivery.warm import agent, agent_program, ahead, marks, sending
from ciao_kernel.delivery.warm.zygote import rank_sign
from ciao_kernel.errors import SpecError
from ciao_kernel.model import JobSpec, Source, SourceFile

NONCE = "0123456789abcdef"


def marker(text: str) -> bytes:
    """A marker as the agent writes it: with a line feed before it."""
    return b"\n" + marks.marker(NONCE) + text.encode() + b"\n"


BEGIN, END = '{"ev":"begin","id":1}', '{"ev":"end","id":1,"code":0}'


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"one\n",
        b"one\n\n",
        b"\n\none\n\n\n",
        b"\x1eciao:fedcba9876543210 {}\n",
        b"a\x1eciao:\n",
    ],
)
def test_lines_of_a_run_are_those_that_it_wrote(lines: bytes) -> None:
    log = b"noise\n" + marker(BEGIN) + lines + marker(END) + b"later\n"
    for size in (1, 3, len(log)):
        reader, found = marks.MarkReader(NONCE), []
        rest = b""
        for start in range(0, len(log), size):
            data = rest + log[start : start + size]
            cut = data.rfind(b"\n") + 1
            rest = data[cut:]
            found += list(reader.read(data[:cut]))
        first, last = found.index({"ev": "begin", "id": 1}), len(found) - 1
        while found[last] != {"ev": "end", "id": 1, "code": 0}:
            last -= 1
        assert (
            b"".join(part for part in found[first + 1 : last] if isinstance(part, bytes)) == lines
        )


def test_a_line_that_a_run_left_open_is_ended() -> None:
    log = marker(BEGIN) + b"open" + marker(END)
    assert marks.lines(log, 1) == b"open\n"
    assert marks.lines(log) == b"open\n"
    assert marks.lines(log, 2) == b""


def test_lines_of_a_run_whose_begin_the_log_has_lost_are_those_before_its_end() -> None:
    log = b"one\n" + marker(END) + b"noise\n" + marker('{"ev":"begin","id":2}') + b"two\n"
    assert [marks.lines(log, number) for number in (1, 2, 3)] == [b"one\n", b"two\n", b""]
    assert not marks.is_whole(log)
    whole = b"noise\n" + marker('{"ev":"ready"}') + b"noise\n" + marker(END)
    assert marks.is_whole(whole)
    assert marks.lines(whole, 1) == b""


def test_times_before_lines_do_not_hide_markers() -> None:
    stamp = b"2026-11-24T23:00:00.123456789Z "
    log = stamp + b"one\n" + stamp + marker(END)[1:] + stamp + b"two\n"
    assert marks.without(log) == stamp + b"one\n" + stamp + b"two\n"


@pytest.mark.parametrize(
    "stamp", [b"", b"2026-11-24T23:00:00.123456789Z ", b"2026-11-24T23:00:00+01:00 "]
)
def test_the_line_feed_before_a_marker_is_no_line_of_the_program(stamp: bytes) -> None:
    one, two, empty = stamp + b"one\n", stamp + b"12\n", stamp + b"\n"
    mark = stamp + marker(END)[1:]
    log = empty + mark + empty + mark + one + empty + empty + mark + two + mark + empty
    assert marks.without(log) == one + empty + two + empty


@pytest.mark.parametrize(
    ("program", "variables", "doubt", "learns"),
    [
        ("import torch\n", {}, False, True),
        ('import os\nos.environ["A"]="3"\nimport tensorflow as tf', {"A": "3"}, False, True),
        ('import os\nos.environ["CUDA_VISIBLE_DEVICES"]=f()\nimport torch', {}, False, True),
        ('import torch, os\nos.environ["NCCL_DEBUG"]="INFO"', {}, False, True),
        ('import os\nos.environ["HF_HOME"]="/x"\nimport transformers', {"HF_HOME": "/x"}, False,
         True),
        ('import os\nos.environ["HF_TOKEN"]=f()\nimport transformers', {}, False, True),
        ('import torch, os\nos.environ["B"]="1"', {}, False, False),
        ('import numpy, os\nos.environ["OMP_NUM_THREADS"]="1"\nimport torch', {}, True, False),
        ('import os\nos.environ.update(A="1")\nimport keras', {"A": "1"}, False, True),
        ('import os\nos.environ |= {"A": "1", "B": "2"}\nimport keras', {"A": "1", "B": "2"}, False,
         True),
        ('import os\nos.environ.update({"A": "1"})\nimport keras', {"A": "1"}, False, True),
        ('import os\nos.environ |= {"A": f()}\nimport keras', {}, True, False),
        ('import os\nos.environ |= {**all_of_them}\nimport keras', {}, True, False),
        ("import os\nos.environ |= settings\nimport keras", {}, True, False),
        ('import os\nos.environ.update(settings, B="1")\nimport keras', {"B": "1"}, True, False),
        ('import os\nfor k in "AB": os.environ[k]="1"\nimport torch', {}, True, False),
        ('import os\ndel os.environ["A"]\nimport torch', {}, True, False),
        ("import os\nos.environ.clear()\nimport torch", {}, True, False),
        ("def f():\n    import torch\nfrom tensorflow.keras import layers", {}, False, True),
        ("def f(:", {}, False, True),
    ],
)  # fmt: skip
def test_variables_before_an_import_are_read_from_the_text(
    program: str, variables: dict[str, str], doubt: bool, learns: bool
) -> None:
    found = ahead.read(program)
    assert (found.variables, bool(found.doubt), found.learns) == (variables, doubt, learns)


SETS = 'import os\ndef setup():\n    os.environ["KERAS_BACKEND"] = "jax"\n'
"""A function that has to be called before an import."""
MAIN = "def main():\n    import keras\nsetup()\nmain()"


@pytest.mark.parametrize(
    ("program", "doubt"),
    [
        (SETS + "setup()\nimport keras", True),
        (SETS + MAIN, True),
        ("def main():\n    import keras\n" + SETS + "setup()\nmain()", True),
        ('import os\ndef main():\n    os.environ["A"] = "1"\n    import keras\nmain()', True),
        ('import os\nasync def f():\n    os.environ["A"] = "1"\nimport keras', True),
        ('import os\nclass A:\n    def f(self):\n        os.putenv("A", "1")\nimport keras', True),
        ('import os\ndef main():\n    import keras\nos.environ["A"] = "1"\nmain()', True),
        ('import os\nif x:\n    os.environ["A"] = "1"\n    import keras', True),
        ("try:\n    import jax\nexcept ImportError:\n    import keras\n" + SETS + MAIN, True),
        ("import keras\n" + SETS + "setup()", False),
        ("import keras\n" + SETS + "def main():\n    import numpy\nsetup()\nmain()", False),
        (SETS.replace("KERAS_BACKEND", "PYTHONHASHSEED") + MAIN, False),
        ("import keras\n" + SETS + "def main():\n    from keras import layers", False),
        (SETS + "setup()\nprint(1)", False),
        (SETS.replace("KERAS_BACKEND", "MASTER_ADDR") + "setup()\nimport torch", False),
        ('import os\ndef f():\n    return os.environ["A"], dict(os.environ)\nimport torch', False),
        ('import os\ndef f(env):\n    env["A"] = os.environ.get("A")\nimport torch', False),
        ('import os\nif x: os.environ["NCCL_DEBUG"] = "INFO"\nimport torch', False),
        ('import os\nif x: os.environ["A"] = "1"\nimport torch', True),
    ],
)
def test_a_function_that_sets_variables_may_run_before_an_import(program: str, doubt: bool) -> None:
    assert bool(ahead.read(program).doubt) == doubt


MODULE = 'import os\nos.environ["KERAS_BACKEND"] = "jax"\n'


@pytest.mark.parametrize(
    ("program", "module", "doubt"),
    [
        ("import conf\nimport keras", MODULE, True),
        ("import conf\nconf.setup()\nimport keras", SETS, True),
        ("import numpy\nimport conf\nimport keras", MODULE, True),
        ("import keras\nimport conf", MODULE, False),
        ("import conf", MODULE, False),
        ("import conf", MODULE + "import keras", True),
        ("def main():\n    import conf, keras\nmain()", MODULE, True),
        ("if TYPE_CHECKING:\n    import keras\nimport conf\nimport keras", MODULE, True),
        ("import conf\nimport keras", 'import os\nfound = os.environ["KERAS_BACKEND"]', False),
        ("import conf\nimport keras", 'import os\nos.environ["MASTER_PORT"] = "1"', False),
        ("import conf\nimport keras", "def f(:", False),
        ("import conf\nimport keras", "import keras\n" + SETS, False),
        ("import conf\nimport numpy", "import keras\n" + SETS, False),
        ("import conf\nimport keras", "import keras\n" + MODULE, False),
        ("import conf\nimport keras, torch", "import keras\n" + SETS, True),
        ("import conf\nimport keras", SETS + "setup()\nimport keras", True),
        ("import conf\nimport keras", "if x:\n    import keras\n" + SETS, True),
        ("import conf\nimport keras", "def f():\n    import keras\n" + SETS, True),
    ],
)
def test_a_module_that_sets_variables_before_an_import_needs_a_fresh_interpreter(
    program: str, module: str, doubt: bool
) -> None:
    found = ahead.read(program, {"conf.py": module}).doubt
    assert found == ("conf.py changes the environment before an import" if doubt else "")


def test_what_a_module_of_the_program_imports_comes_behind_the_variables_of_the_program() -> None:
    program = 'import os\nos.environ["A"] = "1"\nfrom nets.model import build'
    modules = {"nets/__init__.py": "", "nets/model.py": "import keras"}
    assert ahead.read(program, modules).variables == {"A": "1"}
    assert ahead.read("import keras\n" + program, modules) == ahead.Ahead(learns=False)
    assert ahead.read("import nets\n" + program, modules).doubt


@pytest.mark.parametrize(
    ("module", "learns"),
    [
        ("import keras", True),
        (MODULE, False),
        ('import os\nfound = os.environ["A"]', False),
        ('import os\nos.putenv("A", "1")', False),
    ],
)
def test_nothing_is_learned_where_a_module_names_the_environment(module: str, learns: bool) -> None:
    assert ahead.read("import keras\nimport conf", {"conf.py": module}).learns == learns


@pytest.mark.parametrize("named", [True, False], ids=["files", "module"])
def test_the_modules_that_a_program_imports_are_read(named: bool) -> None:
    text, module = b"import conf\nimport keras", MODULE.encode()
    files = (SourceFile("conf.py", module, size=len(module)),)
    other = SourceFile("tools/other.py", module, size=len(module))
    source = Source(
        SourceFile("cell.py", text, size=len(text)),
        modules=() if named else files,
        files=(*files, other) if named else (other,),
        imports=frozenset({"conf", "keras"}),
    )
    assert "conf.py" in sending.pack(source, JobSpec("python")).doubt
    alone = replace(source, modules=(), files=(other,), imports=frozenset({"keras"}))
    assert not sending.pack(alone, JobSpec("python")).doubt, "nothing imports it"


def test_a_default_counts_unless_the_variable_is_given() -> None:
    program = b'import os\nos.environ.setdefault("KERAS_BACKEND", "jax")\nimport keras'
    source = Source(SourceFile("cell.py", program, size=len(program)), imports=frozenset({"keras"}))
    packed = sending.pack(source, JobSpec("python"))
    assert packed.environment == {"KERAS_BACKEND": "jax"}
    assert packed.modules == ("keras",)
    given = JobSpec("python", env=(("KERAS_BACKEND", "torch"), ("EPOCHS", "3")))
    assert sending.pack(source, given).environment == {"KERAS_BACKEND": "torch", "EPOCHS": "3"}


def test_a_variable_that_the_program_reads_itself_comes_with_the_run() -> None:
    assert not ahead.is_early("EPOCHS", ['os.environ["EPOCHS"]'])
    assert ahead.is_early("OMP_NUM_THREADS", ['os.environ["OMP_NUM_THREADS"]'])
    assert not ahead.is_early("NCCL_DEBUG", [""])
    assert not ahead.is_early("CUBLAS_WORKSPACE_CONFIG", [""]), "cuBLAS reads it at its first use"


@pytest.mark.parametrize(
    "name", ["HF_HOME", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_ENDPOINT", "HUGGINGFACE_HUB_CACHE"]
)
def test_variables_that_hugging_face_reads_while_it_is_imported_are_early(name: str) -> None:
    assert ahead.is_early(name, [f'print(os.environ["{name}"])'])
    assert not ahead.is_early("HF_TOKEN", [""]), "it is read at each request"


def test_readers_know_the_sign_of_a_rank() -> None:
    """Both files are parts of programs in pods, where neither can import the other."""
    link = f"/memfd:{rank_sign.SIGN}3 (deleted)"
    assert (found := process_state._RANK_SIGN.fullmatch(link))
    assert found[1] == "3"


def test_a_run_has_all_files_and_not_too_many() -> None:
    files = (SourceFile("data/a.txt", b"a", size=1),)
    packed = sending.pack(
        Source(SourceFile("cell.py", b"1", size=1), files=files), JobSpec("python")
    )
    with tarfile.open(fileobj=io.BytesIO(b64decode(packed.archive))) as archive:
        assert archive.getnames() == ["cell.py", "data/a.txt"]
    large = (SourceFile("large.bin", b"", size=40 << 20),)
    with pytest.raises(SpecError, match="at most 32 MiB"):
        sending.pack(Source(SourceFile("cell.py", b"1", size=1), files=large), JobSpec("python"))


def test_the_agent_is_one_small_file_of_the_standard_library() -> None:
    source = sending.agent()
    assert [file.path for file in source.all()] == ["ciao_warm_agent.py", "ciao_warm_zygote.py"]
    for file in source.all():
        text = (file.data or b"").decode()
        assert file.size == len(text.encode()) < 45_000
        tree = ast.parse(text, feature_version=(3, 9))
        used = {
            name.partition(".")[0]
            for node in ast.walk(tree)
            for name in (
                [one.name for one in node.names]
                if isinstance(node, ast.Import)
                else [node.module or "."]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert used - sys.stdlib_module_names == set()


def test_the_agent_has_all_its_parts_and_no_name_twice() -> None:
    folder = Path(agent.__file__).parent
    assert {one.stem for one in folder.glob("*.py")} == {"__init__", *agent_program.PARTS}
    names = [
        name
        for node in ast.parse(agent_program.text()).body
        for name in (
            [node.name]
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
            else [one.id for one in node.targets if isinstance(one, ast.Name)]
            if isinstance(node, ast.Assign)
            else []
        )
    ]
    assert {"Agent", "Run", "Zygotes", "kill_all"} <= set(names)
    assert len(names) == len(set(names))
