"""Help while writing: Tab, Shift-Tab, and whether a cell is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ciao_kernel.session.plugin_registry import Registry
from tests.helpers.kernels import JOB, Kernel, Place

pytestmark = pytest.mark.stands_for("oldest")

FRAMEWORKS = tuple(Registry({}).table.names.frameworks)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    place = Place(tmp_path_factory.mktemp("place"))
    for name in ("data.csv", "data two.csv", "helper.py"):
        (place.work / name).write_text("x")
    (place.work / "parts").mkdir()
    kernel = Kernel(place)
    yield kernel
    kernel.shutdown(now=True)


def complete(kernel: Kernel, marked: str) -> dict[str, Any]:
    """Press Tab at the ``|`` of a text."""
    cursor = marked.index("|")
    content = {"code": marked.replace("|", "", 1), "cursor_pos": cursor}
    return kernel.ask("complete_request", content)


def applied(kernel: Kernel, marked: str) -> set[str]:
    """The texts that choosing each match would make."""
    code = marked.replace("|", "", 1)
    answer = complete(kernel, marked)
    start, end = answer["cursor_start"], answer["cursor_end"]
    return {code[:start] + match + code[end:] for match in answer["matches"]}


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("%frame|", {"%framework="}),
        ("%framework=te|", {"%framework=tensorflow"}),
        ("%framework=|", {f"%framework={one}" for one in FRAMEWORKS}),
        ("%framework=tensorflow\n%eval|", {"%framework=tensorflow\n%evaluator="}),
        ("%framework=pytorch\n%eval|", set()),
        (JOB + "%cleanPolicy=r|", {JOB + "%cleanPolicy=running"}),
        (JOB + "%clean-po|", {JOB + "%cleanPolicy="}),
        (JOB + "%files=data.|", {JOB + "%files=data.csv"}),
        (JOB + "%files=par|", {JOB + "%files=parts/"}),
        (JOB + "%builder=f|", {JOB + "%builder=folder"}),
        (JOB + "%backend=l|", {JOB + "%backend=local"}),
        (JOB + "%follow=worker-|", {JOB + "%follow=worker-0", JOB + "%follow=worker-1"}),
        ("%framework=tensorflow\n%worker=2;%mem|", {"%framework=tensorflow\n%worker=2;%memory="}),
    ],
)
def test_completion_in_a_header(kernel: Kernel, marked: str, expected: set[str]) -> None:
    assert applied(kernel, marked) == expected


@pytest.mark.parametrize(
    ("marked", "some", "none"),
    [
        # IPython's magics and ours, where either may come.
        ("%e|", {"%env", "%evaluator=", "%envvar=", "%edit"}, {"%framework="}),
        ("%|", {"%time", "%framework=", "%ciao"}, set()),
        # In a header only ours.
        (JOB + "%e|", {"%evaluator=", "%envvar="}, {"%env", "%edit"}),
        # In the body, in plain cells and behind a magic: IPython's alone.
        (JOB + "import o|", {"os"}, set()),
        (JOB + "import os\nos.pat|", {"os.path", "path", ".path"}, set()),
        ("x = 1\nimport o|", {"os"}, set()),
        ("%run hel|", {"helper.py"}, set()),
        ("%%ci|", {"%%ciao"}, set()),
        ("x = 1\n%ciao at|", {"attach"}, {"and"}),
    ],
)
def test_completion_beside_ipython(
    kernel: Kernel, marked: str, some: set[str], none: set[str]
) -> None:
    matches = set(complete(kernel, marked)["matches"])
    if marked.endswith("os.pat|"):  # Versions of IPython differ in what they repeat.
        assert matches & some
    else:
        assert some <= matches
    assert not none & matches


def test_menu_has_a_kind_for_each_match(kernel: Kernel) -> None:
    for marked in ("%e|", "%framework=|"):
        answer = complete(kernel, marked)
        types = answer["metadata"]["_jupyter_types_experimental"]
        assert [one["text"] for one in types] == answer["matches"]
        assert all(one["start"] == answer["cursor_start"] for one in types)


@pytest.fixture(scope="module")
def python3(lasting: Kernel) -> Kernel:
    """A plain IPython kernel with the extension, loaded twice."""
    (lasting.place.work / "data.csv").write_text("x")
    assert lasting.run("%reload_ext ciao_kernel").status == "ok"
    return lasting


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("%frame|", {"%framework="}),
        ("%fra|mework=tensorflow", {"%framework=tensorflow"}),
        ("%framework=te|", {"%framework=tensorflow"}),
        ("%framework=|", {f"%framework={one}" for one in FRAMEWORKS}),
        (JOB + "%files=da|", {JOB + "%files=data.csv"}),
        ("%framework=tensorflow\n%worker=2;%mem|", {"%framework=tensorflow\n%worker=2;%memory="}),
        (JOB + "%ps=|", {JOB + "%ps="}),  # nothing, and none of IPython's own
        (JOB + "import numb|", {JOB + "import numbers"}),
    ],
)
def test_completion_in_another_ipython(python3: Kernel, marked: str, expected: set[str]) -> None:
    assert applied(python3, "%%ciao\n" + marked) == {"%%ciao\n" + one for one in expected}


def test_completion_elsewhere_in_another_ipython_is_its_own(python3: Kernel) -> None:
    matches = complete(python3, "%e|")["matches"]
    assert "%env" in matches
    assert "%evaluator=" not in matches
    assert "%%ciao" in complete(python3, "%%ci|")["matches"]


def test_a_question_mark_behind_ciao_lists_the_verbs(kernel: Kernel, python3: Kernel) -> None:
    for one in (kernel, python3):
        reply = one.ask("execute_request", {"code": "%ciao?", "silent": False})
        (page,) = reply["payload"]
        lines = page["data"]["text/plain"].splitlines()
        assert "  %ciao jobs         list all jobs, oldest first" in lines


def test_names_of_jobs_behind_a_verb(kernel: Kernel, python3: Kernel) -> None:
    for one in (kernel, python3):
        head = "" if one is kernel else "%%ciao\n"
        assert one.run(f"{head}%framework=python\n%name=named\nprint(1)").status == "ok"
        for marked, offer in (
            ("%ciao logs na|", "%ciao logs named"),
            ("%ciao exec named/|", "%ciao exec named/worker-0"),
        ):
            # Tab waits for the jobs half a second at most; on a busy machine it is pressed again.
            one.wait(lambda k=one, m=marked, o=offer: o in applied(k, m), offer)


def shift_tab(kernel: Kernel, marked: str) -> str | None:
    cursor = marked.index("|")
    content = {"code": marked.replace("|", "", 1), "cursor_pos": cursor, "detail_level": 0}
    answer = kernel.ask("inspect_request", content)
    assert answer["status"] == "ok"
    return answer["data"]["text/plain"] if answer["found"] else None


@pytest.mark.parametrize(
    ("marked", "part"),
    [
        ("%frame|work=tensorflow", "tensorflow"),
        (JOB + "%clean-pol|icy=all", "%cleanPolicy"),
        ("%framework=tensorflow\n%worker=2;%mem|ory=4Gi", "%memory"),
        (JOB + "%wrker|=2", "%worker"),
        ("%ciao|", "attach"),
        ("%ciao jo|bs", "attach"),
        ("x = 1\n%ciao lo|gs", "attach"),
        ("%%ciao|\n" + JOB, "attach"),
    ],
)
def test_shift_tab_on_ours(kernel: Kernel, marked: str, part: str) -> None:
    text = shift_tab(kernel, marked)
    assert text is not None
    assert part in text
    assert "usage: -" not in text


@pytest.mark.parametrize(
    ("marked", "part"),
    [
        ("zip|", "zip"),
        (JOB + "zip|", "zip"),
        ("%time|", "time"),
        ("no_such_name|", None),
        (JOB + "'%worker|=2'", None),
    ],
)
def test_shift_tab_elsewhere(kernel: Kernel, marked: str, part: str | None) -> None:
    text = shift_tab(kernel, marked)
    assert text is None if part is None else part in str(text)


def test_question_mark(kernel: Kernel) -> None:
    request = kernel.run("%ciao?")
    assert request.reply is not None
    (page,) = request.reply["content"]["payload"]
    assert "job" in page["data"]["text/plain"]
    for code in ("%worker?", "?%Worker"):
        assert "Number of workers." in kernel.run(code).text
    assert kernel.run("%time?").of("error") == []


@pytest.mark.parametrize("code", ["worker?", "?worker", "??worker", "Worker? "])
def test_the_bare_word_of_a_directive_is_explained(kernel: Kernel, code: str) -> None:
    assert "Number of workers." in kernel.run(code).text


@pytest.mark.parametrize("code", ["jobs?", "%jobs?", "?%jobs"])
def test_the_word_of_a_verb_is_explained(kernel: Kernel, code: str) -> None:
    assert kernel.run(code).text.startswith("usage: %ciao jobs")


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("input?", "input"),  # of Python, and a directive
        ("run?", "%run"),  # IPython's magic, and a verb
        ("%config?", "%config"),
        ("nobody_knows?", ""),
    ],
)
def test_ipython_answers_for_what_it_knows(kernel: Kernel, code: str, part: str) -> None:
    page = ipythons_answer(kernel, code)
    assert part in page if part else not page


def test_ipython_answers_for_a_variable_with_the_name_of_a_directive(kernel: Kernel) -> None:
    assert kernel.run("worker = 7.5").status == "ok"
    try:
        for code in ("worker?", "?worker"):
            assert "float" in ipythons_answer(kernel, code)
        assert "Number of workers." in kernel.run("%worker?").text
    finally:
        kernel.run("del worker")


def ipythons_answer(kernel: Kernel, code: str) -> str:
    """The page of IPython that a cell opens; "" if IPython knows nothing of the name."""
    request = kernel.run(code)
    assert request.reply is not None
    assert request.status == "ok"
    assert "%ciao" not in request.text
    pages = request.reply["content"]["payload"]
    return "".join(one["data"]["text/plain"] for one in pages)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("%framework=tensorflow", "incomplete"),
        ("%framework=tensorflow\n%worker=2", "incomplete"),
        (JOB + "print(1)", "complete"),
        (JOB + "for i in range(3):", "incomplete"),
        (JOB + "for i in range(3):\n    print(i)\n\n", "complete"),
        (JOB + "import = 7", "invalid"),
        (JOB + "x = '''\n", "incomplete"),
        ("%ciao jobs", "complete"),
        ("%worker?", "complete"),
        ("%time 1", "complete"),
        ("a %b", "complete"),
    ],
)
def test_is_complete(kernel: Kernel, code: str, status: str) -> None:
    assert kernel.ask("is_complete_request", {"code": code})["status"] == status
