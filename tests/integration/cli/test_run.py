"""``ciao run``: from a file to a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.command import FAILS, HEADER, LONG, QUICK, User

SHOW = "import json, os, sys\nprint(json.dumps([os.environ['CIAO_REPLICA'], sys.argv[1:]]))\n"


def lines(text: str, replica: str = "worker-0") -> list[str]:
    prefix = f"[{replica}] "
    return [line.removeprefix(prefix) for line in text.splitlines() if line.startswith(prefix)]


def test_a_header_in_comments_makes_a_file_a_job(ciao: User) -> None:
    ciao.file("train.py", HEADER + SHOW)
    done = ciao("run", "train.py")
    assert done.code == 0
    assert sorted(done.out.splitlines()) == [
        '[worker-0] ["worker-0", []]',
        '[worker-1] ["worker-1", []]',
    ]
    assert "Succeeded" in done.err


def test_options_alone_make_a_file_a_job(ciao: User) -> None:
    ciao.file("train.py", "import os\nprint(os.environ['TF_CONFIG'])\n")
    done = ciao("run", "train.py", "--framework", "tensorflow", "--ps", "1", "--worker", "2")
    assert done.code == 0
    cluster = json.loads(lines(done.out)[0])["cluster"]
    assert {role: len(hosts) for role, hosts in cluster.items()} == {"ps": 1, "worker": 2}


def test_options_win_over_the_header_and_arguments_stand_behind_dashes(ciao: User) -> None:
    ciao.file("train.py", "#%framework=tensorflow\n#%worker=2\n#%args=--from header\n" + SHOW)
    done = ciao("run", "train.py", "--worker=1", "--", "--lr", "0.1", "a b", "#1;%ps=2", "--", "x")
    assert done.code == 0
    expected = ["worker-0", ["--lr", "0.1", "a b", "#1;%ps=2", "--", "x"]]
    assert [json.loads(line) for line in lines(done.out)] == [expected]
    assert "worker-1" not in done.out


def test_an_option_may_be_given_several_times_and_hold_any_character(ciao: User) -> None:
    ciao.file("train.py", HEADER + "import os\nprint(os.environ['A'], os.environ['B'])\n")
    words = ["run", "train.py", "--name=n", "--worker=1", "--envvar", "A=1"]
    done = ciao(*words, "--envvar", "B='x  #y;%ps=1'")
    assert lines(done.out) == ["1 x  #y;%ps=1"]
    assert "%envvar=A=… B=…\n" in ciao.describe("n")["header"]  # one may be a password


def test_a_role_may_carry_its_resources(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    words = ["run", "train.py", "--dryrun", "--worker", "2;%cpu=1;%memory=2Gi"]
    assert "%worker=2;%cpu=1;%memory=2Gi" in ciao(*words).out


def test_modules_and_files_beside_the_file_travel(ciao: User) -> None:
    ciao.file("sub/train.py", HEADER + "import helper\nprint(helper.read())\n")
    ciao.file("sub/helper.py", "def read():\n    return open('data.txt').read()\n")
    ciao.file("sub/data.txt", "the data")
    done = ciao("run", "sub/train.py", "--files", "data.txt", "--worker", "1")
    assert done.code == 0
    assert lines(done.out) == ["the data"]
    assert "helper.py" in done.err  # said aloud, and not among the program's lines


@pytest.mark.parametrize("name", ["train.py", "code.py"])
def test_tracebacks_keep_the_name_and_the_lines_of_the_file(ciao: User, name: str) -> None:
    ciao.file(name, b"\xef\xbb\xbf" + FAILS.replace("\n", "\r\n").encode())
    done = ciao("run", name)
    assert done.code == 1
    assert f'  File "{name}", line 4, in <module>' in done.err
    assert "JobFailed: worker-0 ended with exit code 1: ZeroDivisionError" in done.err
    assert "so far" in lines(done.out)


def test_the_file_is_delivered_byte_for_byte(ciao: User) -> None:
    data = b"\xef\xbb\xbf" + (QUICK + "text = 'ü %worker=3'\n").replace("\n", "\r\n").encode()
    ciao.file("train.py", data)
    job = ciao("run", "train.py", "--output", "json").json
    assert Path(job["folder"], "train.py").read_bytes() == data


def test_a_header_below_a_docstring_is_told_by_its_line(ciao: User) -> None:
    ciao.file("doc.py", '"""Trains."""\n#%framework=python\n#%worker=1\nprint(1)\n')
    done = ciao("run", "doc.py")
    assert done.code == 2
    assert (
        "doc.py has no header: line 2 is a comment, no directive (%framework, %worker)" in done.err
    )
    assert "above all code and its docstring" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], ["bare.py has no header", "#%framework=tensorflow", "--framework tensorflow"]),
        (["--worker", "2"], ["no option names a framework"]),
        (["--framework", "tensorflw"], ["--framework cannot be 'tensorflw'", "tensorflow"]),
        (["--framework=tensorflow", "--worker", "two"], ["--worker cannot be 'two'", "number"]),
        (["--framework=pytorch", "--nproc-per-node", "x"], ["--nproc-per-node cannot be 'x'"]),
        (["--framework=tensorflow", "--ps", "1"], ["ps", "for example --worker=2"]),
        (["--framework=tensorflow", "--worker=1", "--follow=ps"], ["no role or replica 'ps'"]),
        (["--framework=tensorflow", "--worker=1", "--files", "no.csv"], ["no.csv"]),
        (["--framework=tensorflow", "--wroker=1"], ["unknown argument --wroker", "--worker?"]),
        (["--framework"], ["--framework: expected one argument"]),
        (["--args", "--rate", "1"], ["--args: expected one argument", "--args='--epochs 3'"]),
        (["--framework=tensorflow", "--worker=1", "x"], ["ciao run: unknown argument x"]),
    ],
)
def test_wrong_options_are_told_as_options(ciao: User, words: list[str], says: list[str]) -> None:
    ciao.file("bare.py", "print(1)\n")
    done = ciao("run", "bare.py", *words)
    assert done.code == 2
    assert done.out == ""
    assert all(text in done.err for text in says), done.err
    assert "line 1" not in done.err
    assert not (ciao.storage / "jobs").exists()


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("no.py", None, "no.py cannot be read: No such file"),
        ("folder", "", "Is a directory"),
        ("bad.py", b"#%worker=1\n'\xff'\n", "is not UTF-8 text"),
        ("note.ipynb", "{}", "is a notebook"),
        ("cell.py", "%framework=tensorflow\n%worker=2\nprint(1)\n", "has the header of a cell"),
        ("typo.py", "#%framework=tensorflow\n#%wroker=2\nprint(1)\n", "line 2: #%wroker=2"),
        ("syntax.py", HEADER + "print(1\n", "line 3: print(1"),
    ],
)
def test_a_file_that_cannot_run_is_a_usage_error(
    ciao: User, name: str, data: str | bytes | None, says: str
) -> None:
    if name == "folder":
        (ciao.folder / name).mkdir()
    elif data is not None:
        ciao.file(name, data)
    done = ciao("run", name)
    assert (done.code, done.out) == (2, "")
    assert says in done.err


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("trian.py", "Did you mean train.py?"),
        ("train", "Did you mean train.py?"),
        ("src/mian.py", "Did you mean src/main.py?"),
        ("other.py", ""),
        ("absent/train.py", ""),
    ],
)
def test_a_missing_program_offers_the_nearest(ciao: User, name: str, hint: str) -> None:
    (ciao.folder / "src").mkdir()
    for there in ("train.py", "train.csv", "src/main.py"):
        ciao.file(there, QUICK)
    done = ciao("run", name)
    assert done.code == 2
    said = f"UsageError: {name} cannot be read: No such file or directory."
    assert done.err.splitlines() == [said, *filter(None, [hint])]


def test_a_dry_run_writes_what_would_run_and_runs_nothing(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    done = ciao("run", "train.py", "--dryrun")
    assert done.code == 0
    assert "worker-1:" in done.out
    assert "TF_CONFIG" in done.out
    assert not (ciao.storage / "jobs").exists()
    assert ciao("run", "train.py", "--dryrun", "-o", "json").code == 2


def test_a_dry_run_refuses_the_requirements_file_that_a_run_refuses(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    ciao.file("notes.txt", "my password: hunter2\n")
    (ciao.folder / "link.txt").symlink_to("/etc/passwd")
    for name, says in (
        ("/etc/passwd", "outside the folder of your code"),
        ("link.txt", "link.txt leads to /etc/passwd, outside of"),
        ("notes.txt", "notes.txt, line 1 does not name a package"),
    ):
        for more in ([], ["--dryrun"]):
            done = ciao("run", "train.py", "--requirements", name, *more)
            assert (done.code, done.out) == (2, "")
            assert says in done.err
            assert "root:" not in done.err
            assert "hunter2" not in done.err
    assert not (ciao.storage / "jobs").exists()


def test_only_a_new_job_is_told_of_this_machine_when_there_is_no_cluster(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    config = ciao.file(
        "kubeconfig",
        "clusters: [{name: far, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "contexts: [{name: far, context: {cluster: far, user: far}}]\n"
        "users: [{name: far, user: {token: t}}]\ncurrent-context: far\n",
    )
    here = "To run on this machine: --backend local."
    for named, hint in (
        (ciao.folder / "typo", "Correct it, or unset it to use ~/.kube/config."),
        (
            config,
            "Are the server and the network up? `ciao config context=…` chooses another cluster.",
        ),
    ):
        away = {"KUBECONFIG": str(named), "CIAO_REQUEST_PATIENCE": "0.5"}
        for words in (["run", "train.py"], ["run", "train.py", "--dryrun"]):
            assert f"{hint} {here}\n" in ciao(*words, env=away).err
        for words in (["jobs"], ["logs", "mnist"]):
            assert f"{hint}\n" in ciao(*words, env=away).err


def test_json_is_alone_on_standard_output_and_tells_of_failures_too(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    done = ciao("run", "train.py", "--output=json")
    assert done.code == 0
    assert done.json["state"] == "Succeeded"
    assert [one["exit_code"] for one in done.json["replicas"]] == [0, 0]
    assert "[worker-0] hello" in done.err
    ciao.file("train.py", FAILS)
    done = ciao("run", "train.py", "-ojson")
    assert done.code == 1
    assert done.json["state"] == "Failed"
    assert "ZeroDivisionError" in done.json["error"]
    done = ciao("run", "train.py", "-o", "json", "--clean-policy", "all")
    assert (done.code, done.json["state"]) == (1, "Failed")


def test_a_detached_job_is_named_alone_on_standard_output(ciao: User) -> None:
    ciao.file("train.py", LONG)
    done = ciao("run", "-d", "--name", "far", "train.py")
    assert (done.code, done.out) == (0, "far\n")
    assert "`ciao attach far`" in done.err
    assert "`ciao delete far`" in done.err
    assert ciao.describe("far")["state"] == "Running"
    assert ciao("run", "-d", "-o", "json", "--name", "far", "train.py").json["name"] == "far-2"


def test_output_is_plain_text_in_a_pipe_whatever_the_job_writes(ciao: User) -> None:
    text = r"'\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07 \xff ü'"
    ciao.file("train.py", HEADER + f"import sys\nsys.stdout.write({text} + '\\n')\n")
    done = ciao("run", "train.py", "--worker=1", env={"PYTHONIOENCODING": "utf-8"})
    assert lines(done.out) == ["red  ÿ ü"]
    assert "\x1b" not in done.out + done.err
    ciao.file("train.py", HEADER + f"raise ValueError({text})\n")
    assert "\x1b" not in ciao("run", "train.py").err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode_is_no_error(ciao: User, encoding: str) -> None:
    ciao.file("train.py", HEADER + "print('é ✓')\n")
    env = {"PYTHONIOENCODING": encoding, "CIAO_PYTHON": ""}
    done = ciao.shell("ciao run train.py --envvar PYTHONIOENCODING=utf-8 --worker 1", **env)
    assert done.code == 0, done.err
    assert done.out.startswith("[worker-0] ")


# ------------------------------------------------------------------------------- packages

WHO = """\
import json, os, sys
from . import helper
from .deep.inner import NAME
print(json.dumps([
    __name__, __package__, __spec__.name, os.path.relpath(sys.argv[0], os.getcwd()), sys.argv[1:],
    helper.read(), NAME,
]))
"""


def package(ciao: User) -> None:
    ciao.file("pkg/__init__.py", "")
    ciao.file("pkg/deep/__init__.py", "")
    ciao.file("pkg/deep/inner.py", "from ..helper import NAME\n")
    ciao.file(
        "pkg/helper.py", "NAME = 'inner'\n\ndef read():\n    return open('data.txt').read()\n"
    )
    ciao.file("pkg/train.py", HEADER + WHO)
    ciao.file("data.txt", "the data")


@pytest.mark.parametrize("words", [["-m", "pkg.train"], ["pkg/train.py"]])
def test_a_program_in_a_package_runs_as_with_python_m(ciao: User, words: list[str]) -> None:
    package(ciao)
    done = ciao("run", *words, "--worker", "1", "--files", "data.txt", "--", "--lr", "0.1")
    assert done.code == 0, done.err
    (line,) = lines(done.out)
    expected = [
        "__main__",
        "pkg",
        "pkg.train",
        "pkg/train.py",
        ["--lr", "0.1"],
        "the data",
        "inner",
    ]
    assert json.loads(line) == expected


@pytest.mark.frameworks
def test_torchrun_starts_the_module_of_a_package(ciao: User) -> None:
    package(ciao)
    words = ["run", "-m", "pkg.train", "--framework", "pytorch", "--worker", "1"]
    # Four processes import torch.
    done = ciao.finish(ciao.start(*words, "--files", "data.txt", "--", "--lr", "0.1"), 240)
    assert done.code == 0, done.err
    expected = [
        "__main__",
        "pkg",
        "pkg.train",
        "pkg/train.py",
        ["--lr", "0.1"],
        "the data",
        "inner",
    ]
    for replica in ("master-0", "worker-0"):
        # torch may write a warning about the machine's name too.
        own = [line for line in lines(done.out, replica) if line.startswith('["')]
        assert [json.loads(line) for line in own] == [expected]


JOINED = """
import json, os, sys
import xgboost as xgb
from . import helper
sizes = [xgb.collective.get_rank(), xgb.collective.get_world_size()]
words = [__name__, __spec__.name, os.path.relpath(sys.argv[0], os.getcwd()), sys.argv[1:]]
print(json.dumps([*sizes, *words, helper.NAME]))
"""


@pytest.mark.second("packages")
@pytest.mark.frameworks
def test_xgboost_connects_the_module_of_a_package(ciao: User) -> None:
    package(ciao)
    ciao.file("pkg/train.py", JOINED)
    words = ["run", "-m", "pkg.train", "--framework", "xgboost", "--worker", "1"]
    done = ciao.finish(ciao.start(*words, "--files", "data.txt", "--", "--lr", "0.1"), 240)
    assert done.code == 0, done.err
    for rank, replica in enumerate(("master-0", "worker-0")):
        own = [line for line in lines(done.out, replica) if line.startswith(f"[{rank},")]
        expected = [rank, 2, "__main__", "pkg.train", "pkg/train.py", ["--lr", "0.1"], "inner"]
        assert [json.loads(line) for line in own] == [expected]


def test_a_traceback_of_a_package_names_its_file(ciao: User) -> None:
    ciao.file("pkg/__init__.py", "")
    ciao.file("pkg/train.py", FAILS)
    done = ciao("run", "-m", "pkg.train")
    assert done.code == 1
    assert '  File "pkg/train.py", line 4, in <module>' in done.err
    assert str(ciao.storage) not in done.err.partition("Traceback")[2].partition("JobFailed")[0]


def test_files_of_the_command_line_are_relative_to_the_user(ciao: User) -> None:
    ciao.file("sub/train.py", HEADER + "print(open('data.txt').read())\n")
    ciao.file("data.txt", "mine")
    done = ciao("run", "sub/train.py", "--files", "data.txt", "--worker", "1")
    assert lines(done.out) == ["mine"]
    ciao.file("sub/data.txt", "beside it")
    done = ciao("run", "sub/train.py", "--files", "data.txt", "--worker", "1", "--name", "not-run")
    assert done.code == 2
    assert "--files data.txt names two things" in done.err
    assert "Write --files ./data.txt for the first one." in done.err
    assert "not-run" not in ciao("jobs", "--all").out
    done = ciao("run", "sub/train.py", "--files", "./data.txt", "--worker", "1")
    assert lines(done.out) == ["mine"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no program is named."),
        (["-m", "pkg.absent"], "there is no module pkg.absent in"),
        (["-m", "pkg.train", "extra"], "-m names the program, so extra has no meaning."),
    ],
)
def test_a_program_must_be_named_once(ciao: User, words: list[str], says: str) -> None:
    package(ciao)
    done = ciao("run", *words)
    assert done.code == 2
    assert says in done.err
