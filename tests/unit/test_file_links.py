"""Links to the files of a job: only what the notebook's server serves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ciao_kernel.display.html_table import table_html
from ciao_kernel.display.table import Table
from ciao_kernel.jupyter.file_links import FileLinks, file_links
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status


def server(folder: Path, root: Path, base_url: str = "/") -> None:
    """Write a server's runtime file, as Jupyter Server does."""
    text = json.dumps({"root_dir": str(root), "base_url": base_url, "pid": 17, "token": "secret"})
    (folder / "jpserver-17.json").write_text(text)


def found(runtime: Path, notebook: str) -> FileLinks | None:
    return file_links({"JPY_PARENT_PID": "17", "JPY_SESSION_NAME": notebook}, runtime)


def test_links_are_relative_to_the_notebooks_folder(tmp_path: Path) -> None:
    root = tmp_path / "root"
    server(tmp_path, root, "/user/ada/")
    for notebook in (f"{root}/deep/one.ipynb", "deep/one.ipynb"):
        links = found(tmp_path, notebook)
        assert links is not None
        assert links.file(f"{root}/jobs/m/logs/worker-0.log") == "../jobs/m/logs/worker-0.log"
        assert links.file(f"{root}/deep/a b&c#d?e:f.log") == "a%20b%26c%23d%3Fe%3Af.log"
        assert links.directory(f"{root}/jobs/a b") == "/user/ada/lab/tree/jobs/a%20b"


def test_what_the_server_does_not_serve_has_no_link(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "way-out").symlink_to(tmp_path)
    server(tmp_path, root)
    links = found(tmp_path, f"{root}/one.ipynb")
    assert links is not None
    hidden, outside = f"{root}/.local/state/x.log", f"{tmp_path}/x.log"
    for path in (hidden, outside, f"{root}/way-out/x.log", "team-a", "", f"{root}/../x.log"):
        assert links.file(path) == ""
        assert links.directory(path) == ""


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"JPY_SESSION_NAME": "one.ipynb"},
        {"JPY_PARENT_PID": "17"},
        {"JPY_PARENT_PID": "18", "JPY_SESSION_NAME": "one.ipynb"},
        {"JPY_PARENT_PID": "../17", "JPY_SESSION_NAME": "one.ipynb"},
        {"JPY_PARENT_PID": "17", "JPY_SESSION_NAME": "/elsewhere/one.ipynb"},
    ],
)
def test_a_kernel_without_a_server_has_no_links(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    server(tmp_path, tmp_path / "root")
    assert file_links(environment, tmp_path) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"root_dir": 1, "base_url": "/"}', '{"root_dir": "/", "base_url": "//x/"}'],
)
def test_a_file_that_no_server_wrote_gives_no_links(tmp_path: Path, text: str) -> None:
    (tmp_path / "jpserver-17.json").write_text(text)
    assert found(tmp_path, "one.ipynb") is None


def test_the_table_has_links_or_the_plain_text(tmp_path: Path) -> None:
    root = tmp_path / "root"
    server(tmp_path, root)
    one = Replica("worker", 0)
    table = Table(Job("m", "local", "tensorflow", (one,), 0.0, f"{root}/m/work"))
    log = f"{root}/m/logs/worker-0.log"
    table.status = Status(State.RUNNING, (ReplicaStatus(one, State.RUNNING, 1.0, log=log),))
    linked, plain = table_html(table, found(tmp_path, "one.ipynb")), table_html(table)
    assert '<a href="m/logs/worker-0.log">worker-0.log</a>' in linked
    assert f'<a href="/lab/tree/m/work" target="_blank" rel="noopener">{root}/m/work</a>' in linked
    assert "<a" not in plain
    assert f"<code>{root}/m/work</code>" in plain
