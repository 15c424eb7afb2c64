"""Completion in headers; ``|`` marks the cursor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ciao_kernel.delivery.input.files import find
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.help.completion import Completion, complete
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
TF = "%framework=tensorflow\n"
PT = "%framework=pytorch\n"


def at(marked: str, folder: Path = Path("/"), style: Style = Style.CELL) -> Completion | None:
    cursor = marked.index("|")
    return complete(marked[:cursor] + marked[cursor + 1 :], cursor, TABLE, folder, style)


def matches(marked: str, folder: Path = Path("/")) -> tuple[str, ...]:
    found = at(marked, folder)
    assert found is not None
    return found.matches


def after(marked: str, folder: Path = Path("/")) -> str:
    """The text once the only match is taken."""
    found = at(marked, folder)
    assert found is not None
    (match,) = found.matches
    text = marked.replace("|", "")
    return text[: found.start] + match + text[found.end :]


# ------------------------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (TF + "%wo|", "%worker="),
        (TF + "%WO|", "%worker="),
        (TF + "%det|", "%detach"),
        (TF + "%clean-p|", "%cleanPolicy="),
        (TF + "  %wo|", "  %worker="),
        (TF + "%ps=1;%mem|", "%ps=1;%memory="),
        (TF + "%ps=1; %mem|;%cpu=1", "%ps=1; %memory=;%cpu=1"),
        (TF + "%wo|rker=2", "%worker=2"),
        (TF + "%wo|rker 2", "%worker= 2"),
        (TF + "%wo|\nimport os\n", "%worker=\nimport os\n"),
        ("\r\n%fr|\r\nx", "\r\n%framework=\r\nx"),
    ],
)
def test_names(marked: str, expected: str) -> None:
    assert after(marked) == (expected if marked[0] == "\r" else TF + expected)


def test_all_names_in_the_tables_order() -> None:
    found = at("%|")
    assert found is not None
    assert found.merge
    assert found.matches[:3] == ("%framework=", "%chief=", "%master=")
    assert len(found.matches) == len(TABLE.entries)
    assert (found.start, found.end) == (0, 1)


def test_roles_are_the_frameworks() -> None:
    names = matches(PT + "%|")
    assert "%master=" in names
    assert not {"%ps=", "%chief=", "%evaluator="} & set(names)
    assert {"%ps=", "%chief=", "%evaluator="} <= set(matches(TF + "%|"))
    assert "%ps=" in matches("%framework=mxnet\n%|")


def test_what_is_given_is_not_offered_again() -> None:
    text = TF + "%worker=2\n%detach\n%cpu=1\n%args=a\n%envvar=A=1\n"
    names = matches(text + "%|")
    assert not {"%framework=", "%worker=", "%detach", "%cpu="} & set(names)
    assert {"%args=", "%envvar=", "%ps=", "%memory="} <= set(names)
    assert matches(TF + "%|\n%worker=2\n")[0] == "%chief="
    assert "%worker=" not in matches(TF + "%|\n%worker=2\n")
    # … but the one under the cursor is.
    assert matches(TF + "%work|er=2\n") == ("%worker=",)


@pytest.mark.parametrize("typed", ["On", "on", "ONF", "'o"])
def test_a_choice_in_any_case(typed: str) -> None:
    assert "OnFailure" in matches(f"{TF}%restartPolicy={typed}|")


def test_resources_first_behind_a_role() -> None:
    assert matches(TF + "%cpu=1\n%worker=2;%|")[:3] == ("%cpu=", "%memory=", "%gpu=")
    assert matches(TF + "%worker=2;%cpu=1;%|")[:2] == ("%memory=", "%gpu=")
    assert matches(TF + "%worker=2;%cpu=1;%cp|") == ()
    assert matches(TF + "%worker=2;%cpu=1\n%cp|") == ("%cpu=",)
    assert matches(TF + "%worker=2;%cpu=1\n%ps=1;%cp|") == ("%cpu=",)


@pytest.mark.parametrize(
    ("marked", "merge"),
    [
        ("%fr|", True),
        ("%ti|", True),
        ("# note\n%fr|", True),
        ("%matplotlib inline\n%fr|", True),
        ("%worker=2;%fr|", False),
        ("%fr|;%worker=2", False),
        ("%worker=2\n%fr|", False),
        ("%fr|\n%worker=2", False),
        ("%%ciao\n%fr|", False),
        ("%framework=t|", False),
    ],
)
def test_ipythons_magics_belong_while_the_cell_is_no_job(marked: str, merge: bool) -> None:
    found = at(marked)
    assert found is not None
    assert found.merge is merge


@pytest.mark.parametrize(
    "marked",
    [
        "|",
        "x|",
        "|%worker=2",
        TF + "|",
        TF + "im|",
        TF + "x = 1\n%wo|",
        TF + "# %wo|",
        TF + "!l|",
        "%cd da|",
        "%matplotlib inl|",
        "%%ti|",
        "%%ci|",
        "%%bash\n%wo|",
        "%%ciao|",
        TF + "\n|\n",
        "%worker=2\r|\nx",
    ],
)
def test_elsewhere_ipython_completes(marked: str) -> None:
    assert at(marked) is None


def test_files_in_comments() -> None:
    assert at("#%fr|\nimport os", style=Style.FILE) == Completion(("%framework=",), 1, 4)
    assert at("# %fr|", style=Style.FILE) == Completion(("%framework=",), 2, 5)
    assert at("#%framework=pyto|", style=Style.FILE) == Completion(("pytorch",), 12, 16)
    assert at("#%% ce|", style=Style.FILE) is None
    assert at("#%fr|") is None


# ----------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("%framework=|", tuple(TABLE.names.frameworks)),
        ("%framework=PyTo|", ("pytorch",)),
        ("%framework |", tuple(TABLE.names.frameworks)),
        ("%framework = te|", ("tensorflow",)),
        ("%framework=z|", ()),
        ("%framework=pytorch a|", ()),
        ("%framework=tensorflow # a|", ()),
        (TF + "%runner=|", ("auto", "python", "torchrun")),
        (TF + "%cleanPolicy=a|", ("all",)),
        (TF + "%backend=|", ("auto", "local", "kubernetes")),
        (TF + "%builder=|", ("auto", "folder", "configmap", "append", "kaniko", "s2i")),
        (TF + "%ps=1;%detach=|", ("true", "false")),
        (TF + "%dryrun=f|", ("false",)),
        (TF + "%dryrun=|", ("true", "false", "server")),
        (TF + "%worker=|", ()),
        (TF + "%cpu=in|", ()),
        (TF + "%nonsense=in|", ()),
        (TF + "%matplotlib in|", ()),
        (TF + "%ps=1;%worker=2\n%follow=|", ("ps", "worker", "ps-0", "worker-0", "worker-1")),
        (TF + "%ps=1;%worker=2\n%follow=ps-0 wor|", ("worker", "worker-0", "worker-1")),
        (TF + "%ps=0;%worker=1\n%follow=|", ("worker", "worker-0")),
        (PT + "%follow=|", ("master", "worker")),
        (TF + "%ps=1;%worker=2\n%serve=|", ("ps", "worker")),
        (TF + "%ps=1;%worker=2\n%serve=ps,w|", ("ps,worker",)),
        (TF + "%plot=ac|", ("accuracy",)),
        (TF + "%plot=loss,val_|", ("loss,val_loss", "loss,val_accuracy")),
        (TF + "%plot=loss val_l|", ("val_loss",)),
    ],
)
def test_values(marked: str, expected: tuple[str, ...]) -> None:
    assert matches(marked) == expected


def test_the_rest_of_a_value_is_replaced() -> None:
    assert after("%framework=pyto|r;%worker=2") == "%framework=pytorch;%worker=2"
    assert after("%framework=pyto|r # my") == "%framework=pytorch # my"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.csv", "test.csv", "my data.csv", ".hidden", "it's.csv", 'a"b.csv'):
        (tmp_path / name).touch()
    (tmp_path / "conf" / "sub").mkdir(parents=True)
    (tmp_path / "conf" / "a.yaml").touch()
    (tmp_path / "my folder").mkdir()
    (tmp_path / "my folder" / "x y.txt").touch()
    (tmp_path / "line\nend").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("%files=tr|", "%files=train.csv"),
        ("%files=train.csv te|", "%files=train.csv test.csv"),
        ("%files=tr|ain.csv b", "%files=train.csv b"),
        ("%files=tr|;%worker=1", "%files=train.csv;%worker=1"),
        ("%files=co|", "%files=conf/"),
        ("%files=conf/s|", "%files=conf/sub/"),
        ("%files=conf/a|", "%files=conf/a.yaml"),
        ("%files=./tr|", "%files=./train.csv"),
        ("%files='my d|", "%files='my data.csv'"),
        ("%files='my d|' b", "%files='my data.csv' b"),
        ('%files="my d|', '%files="my data.csv"'),
        ('%files="my d|ata.csv" b', '%files="my data.csv" b'),
        ("%files=my\\ d|", "%files=my\\ data.csv"),
        ("%files='my folder/|'", "%files='my folder/x y.txt'"),
        ("%files='my folder/'|", "%files='my folder/x y.txt'"),
        ("%files='my folder/'x|", "%files='my folder/x y.txt'"),
        ("%files=it|", "%files='it'\"'\"'s.csv'"),
        ('%files="a|', '%files="a\\"b.csv"'),
        ("%files=.h|", "%files=.hidden"),
    ],
)
def test_files(marked: str, expected: str, folder: Path) -> None:
    assert after(marked, folder) == expected


def test_files_of_a_folder(folder: Path) -> None:
    assert matches("%files=|", folder) == (
        "'a\"b.csv'",
        "conf/",
        "'it'\"'\"'s.csv'",
        "'my data.csv'",
        "'my folder/'",
        "test.csv",
        "train.csv",
    )
    assert matches("%files=conf/|", folder) == ("conf/a.yaml", "conf/sub/")
    for outside in ("/", "/et", "../", "conf/../../", "~/", "no/such/", "a\0/", "\ud800/"):
        assert matches(f"%files={outside}|", folder) == ()


def test_names_with_a_sign_in_front_are_written_as_they_are_taken(folder: Path) -> None:
    for name in ("~t.csv", "!x.csv", "conf/~b"):
        (folder / name).touch()
    found = matches("%files=|", folder)
    assert {"'./~t.csv'", "'./!x.csv'"} < set(found)
    assert matches("%files=./~|", folder) == ("'./~t.csv'",)
    assert matches("%files=conf/~|", folder) == ("'conf/~b'",)
    for name in ("./~t.csv", "./!x.csv"):
        assert find([name], folder, "cell.py").files.keys() == {name.removeprefix("./")}


def test_what_is_refused_is_not_offered(folder: Path) -> None:
    (folder / ".env").touch()
    (folder / ".environment").touch()
    (folder / "x.key").mkdir()

    def secret(file: Path) -> bool:
        assert not file.is_dir()
        return file == folder / ".env"

    found = complete("%files=.e", 9, TABLE, folder, secret=secret)
    assert found is not None
    assert found.matches == (".environment",)


def test_a_folder_without_end_is_not_read_to_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ciao_kernel.magics.help.path_completion._MOST_ENTRIES", 3)
    assert len(matches("%files=|", folder)) <= 3


def test_a_folder_that_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(path)

    monkeypatch.setattr("os.scandir", refuse)
    assert matches("%files=conf/|", folder) == ()


def test_interpreters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", {"python3": "/usr/bin/python3"}.get)
    monkeypatch.setattr("sys.executable", "/opt/python")
    monkeypatch.setenv("HOME", str(folder))
    assert matches("%python=|", folder) == ("python3", "/opt/python")
    assert matches("%python=py|", folder) == ("python3",)
    assert matches("%python=~/co|", folder) == ("'~/conf/'",)
    assert matches(f"%python={folder}/co|", folder) == (f"{folder}/conf/",)


@pytest.mark.parametrize(
    ("chosen", "variable", "offered"),
    [
        ("3.11.7\n", "", ["python3", "python3.11"]),
        ("3.11.7\n3.12\n", "", ["python3", "python3.12", "python3.11"]),
        ("3.11.7\n", "3.10.1:3.11.7", ["python3", "python3.11", "python3.10"]),
        ("3.9.1\n", "", []),
        ("system\n", "", ["python3", "python3.12", "python3.11", "python3.10"]),
        ("", "", ["python3", "python3.12", "python3.11", "python3.10"]),  # no file of pyenv
    ],
)
def test_shims_of_versions_that_are_not_chosen_are_not_offered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, variable: str, offered: list[str]
) -> None:
    root = folder / "pyenv"
    (root / "shims").mkdir(parents=True)
    for version in ("3.10.1", "3.11.7", "3.12.1"):
        (root / "versions" / version / "bin").mkdir(parents=True)
        for name in ("python3", f"python{version[:4]}"):
            for place in (root / "shims", root / "versions" / version / "bin"):
                (place / name).touch(mode=0o755)
    if chosen:
        (root / "version").write_text(chosen)
    monkeypatch.setenv("PATH", str(root / "shims"))
    monkeypatch.setenv("PYENV_VERSION", variable)
    monkeypatch.setattr("sys.executable", "/opt/python")
    assert matches("%python=|", folder) == (*offered, "/opt/python")


def test_of_many_interpreters_the_newest_come_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("sys.executable", "/opt/python")
    names = matches("%python=|", folder)
    assert names[:2] == ("python3", "python")
    numbers = [int(name.removeprefix("python3.")) for name in names[2:-1]]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[-1] == 10
    assert sys.version_info.minor in numbers
    assert names[-1] == "/opt/python"


def test_a_home_that_nobody_has(folder: Path) -> None:
    assert matches("%python=~no-such-user/|", folder) == ()


def test_of_very_many_matches_some_are_offered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ciao_kernel.magics.help.path_completion.MOST_MATCHES", 2)
    monkeypatch.setattr("ciao_kernel.magics.help.completion._MOST_REPLICAS", 3)
    assert matches("%files=t|", folder) == ("test.csv", "train.csv")
    assert matches("%files=conf/|", folder) == ("conf/a.yaml", "conf/sub/")
    (folder / "trial.csv").touch()
    assert matches("%files=t|", folder) == ("test.csv", "train.csv")
    text = TF + "%worker=1000\n%follow=worker-"
    assert matches(text + "|") == ("worker-0", "worker-1", "worker-2")
    found = complete("%input=", 7, TABLE, folder, variables=["c", "b", "a"])
    assert found is not None
    assert found.matches == ("a", "b")
