"""How a page reaches a port: only by a proxy that is known to be there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.jupyter.file_links import FileLinks
from ciao_kernel.jupyter.server_proxy import folders, reach
from ciao_kernel.session.tensorboard.board import Reach

LINKS = FileLinks("/home/ada", ".", "/user/ada/")


def enabled(folder: Path, name: str, value: Any) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {"ServerApp": {"jpserver_extensions": {"jupyter_server_proxy": value}}}
    file.write_text(json.dumps(found))
    return folder


@pytest.mark.parametrize(
    "name", ["jupyter_server_config.d/jupyter-server-proxy.json", "jupyter_server_config.json"]
)
def test_an_extension_of_the_server_is_used(tmp_path: Path, name: str) -> None:
    folders = [tmp_path / "nowhere", enabled(tmp_path, name, True)]
    assert reach({}, LINKS, folders) == Reach("/user/ada/proxy/%PORT%/")


def test_without_a_server_that_is_known_there_is_no_page(tmp_path: Path) -> None:
    folder = enabled(tmp_path, "jupyter_server_config.json", True)
    assert reach({}, None, [folder]) == Reach()


@pytest.mark.parametrize("value", [False, "yes", None])
def test_an_extension_that_is_off_is_not_used(tmp_path: Path, value: Any) -> None:
    assert reach({}, LINKS, [enabled(tmp_path, "jupyter_server_config.json", value)]) == Reach()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ServerApp": 1}', "\xff"])
def test_other_files_are_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "jupyter_server_config.json").write_text(text, encoding="latin-1")
    assert reach({}, LINKS, [tmp_path]) == Reach()


def test_a_named_address_comes_first() -> None:
    named = {"TENSORBOARD_PROXY_URL": "/hub/proxy/%PORT%/", "KERNEL_USERNAME": "ada"}
    assert reach(named, LINKS, []) == Reach("/hub/proxy/%PORT%/")
    for wrong in ("/hub/proxy/6006/", "javascript:%PORT%"):
        assert reach({"TENSORBOARD_PROXY_URL": wrong}, LINKS, []) == Reach()


def test_no_browser_reaches_a_kernel_behind_a_gateway(tmp_path: Path) -> None:
    folder = enabled(tmp_path, "jupyter_server_config.json", True)
    assert reach({"KERNEL_USERNAME": "ada"}, LINKS, [folder]) == Reach(remote=True)


def test_folders_that_the_user_names_come_first(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    named = {"JUPYTER_CONFIG_PATH": os.pathsep.join(("", str(first), str(second)))}
    assert folders(named)[:2] == [first, second]
    assert first not in folders({})
