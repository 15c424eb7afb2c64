"""ciao's own modules beside a program, in real processes: what they cost each of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from ciao_kernel.builders.folder import FolderBuilder
from ciao_kernel.config import Settings
from ciao_kernel.delivery import inspection, site_folder
from ciao_kernel.model import Artifact, JobSpec, Source, SourceFile
from ciao_kernel.plugins import Build

PROGRAM = """\
import sys
before = {*sys.modules}
import sitecustomize
print(sys.breakpointhook.__module__, *sorted({*sys.modules} - before))
"""
"""Says whose breakpoint() it has, and what was imported for that; it imports nothing itself."""
SLOW = {
    "typing", "re", "enum", "signal", "pathlib", "threading", "json", "subprocess", "warnings",
    "ctypes",
    "importlib",  # the finders of Python 3.13 import importlib.metadata for invalidate_caches()
}  # fmt: skip


def built(folder: Path) -> Path:
    """Build a program with all parts, and return its folder."""
    entry = SourceFile("program.py", PROGRAM.encode(), size=len(PROGRAM))
    source = inspection.with_files(Source(entry, (), ()), kept_for=60)
    folder.mkdir()
    ask = Build(source, JobSpec("python"), sys.executable, "job", folder, folder)
    artifact: Artifact = asyncio.run(FolderBuilder(Settings()).build(ask, print))
    return Path(artifact.workdir)


def run(work: Path, *options: str, **variables: str) -> list[str]:
    """Run the program without other modules of the environment."""
    environment = {**os.environ, "PYTHONPATH": site_folder.path(str(work)), **variables}
    environment.pop("PYTHONPYCACHEPREFIX", None)
    command = [sys.executable, "-S", *options, str(work / "program.py")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.split()


@pytest.fixture(autouse=True)
def usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python keeps bytecode if nobody asks for another place."""
    monkeypatch.setattr(sys, "pycache_prefix", None)


def test_each_process_imports_little_before_the_program(tmp_path: Path) -> None:
    hook, *imported = run(built(tmp_path / "a"))
    assert hook == "ciao_debugger"
    assert {"ciao_stack_handler", "ciao_debugger", "ciao_post_mortem"} <= {*imported}
    assert not ({*imported} & SLOW)


def test_a_process_compiles_nothing_of_it(tmp_path: Path) -> None:
    for name in ("a", "b"):  # the first job of a kernel, and a later one
        work = built(tmp_path / name)
        modules = sorted((work / site_folder.FOLDER).glob("*.py"))
        started = [
            one for one in modules if f"{site_folder.FOLDER}/{one.name}" in site_folder.STARTED
        ]
        assert len(started) == 4
        for module in started:
            assert Path(cache_from_source(str(module))).is_file()
            module.write_text("raise RuntimeError('it was compiled')\n")
        hook, *_ = run(work)
        assert hook == "ciao_debugger"


def test_another_python_compiles_the_text(tmp_path: Path) -> None:
    work = built(tmp_path / "a")
    for code in (work / site_folder.FOLDER / "__pycache__").iterdir():
        code.write_bytes(b"\0\0\r\n" + code.read_bytes()[4:])  # of no version that there is
    hook, *_ = run(work)
    assert hook == "ciao_debugger"
    # Optimized bytecode has another name.
    assert run(built(tmp_path / "b"), "-O")[0] == "ciao_debugger"


def test_tracebacks_name_the_file_of_this_job(tmp_path: Path) -> None:
    built(tmp_path / "a")
    work = built(tmp_path / "b")
    (work / "program.py").write_text(
        "import sys, sitecustomize\nprint(sys.breakpointhook.__code__.co_filename)\n"
    )
    assert run(work) == [f"{site_folder.path(str(work))}/ciao_debugger.py"]


def test_nothing_is_written_where_python_would_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "elsewhere"))
    work = built(tmp_path / "a")
    assert not (work / site_folder.FOLDER / "__pycache__").exists()
    assert not (tmp_path / "elsewhere").exists()
