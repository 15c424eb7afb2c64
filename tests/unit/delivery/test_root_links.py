"""The links /input and /output of a pod: which jobs have them, and what makes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.backends.kubernetes.apis import JOB
from ciao_kernel.delivery import root_links
from ciao_kernel.magics.directives.volumes import Volumes
from ciao_kernel.model import JobSpec, Source, SourceFile
from tests.unit.backends.kubernetes.manifests.test_manifest import objects, pod

INPUT, OUTPUT = {"/input": "/ciao/input"}, {"/output": "/ciao/output"}


@pytest.mark.parametrize(
    ("volumes", "inputs", "outputs", "warm", "links"),
    [
        ("data:input", (), (), None, INPUT),
        ("data:input/train", (), ("output/",), None, INPUT | OUTPUT),
        ("data:data", ("table",), ("loss", "out/"), None, INPUT),
        ("data:data", (), ("loss", "out/"), None, {}),
        ("data:input team:/input/x team:/output", (), ("output/",), None, {}),
        ("data:input", (), ("output/",), 60, {}),
    ],
)
def test_the_folders_that_a_job_has_get_a_link(
    volumes: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    warm: int | None,
    links: dict[str, str],
) -> None:
    spec = JobSpec(
        "python", volumes=Volumes().parse(volumes), inputs=inputs, outputs=outputs, warm=warm
    )
    source = Source(SourceFile("ciao_cell.py", b""))
    assert root_links.links(spec, "/ciao", source) == links


def test_a_folder_input_of_files_gets_a_link_too() -> None:
    files = (SourceFile("input/train.csv", b""),)
    source = Source(SourceFile("ciao_cell.py", b""), files=files)
    assert root_links.links(JobSpec("python"), "/ciao", source) == INPUT


def test_a_link_is_made_where_nothing_is_and_the_program_starts_in_any_case(
    tmp_path: Path,
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "led").symlink_to("/nowhere")
    wanted = {
        str(tmp_path / name): str(tmp_path / "it's") for name in ("own", "led", "new", "no/x")
    }
    text = root_links.make(wanted) + root_links.EXECUTE
    command = [sys.executable, "-I", "-S", "-c", text]
    done = subprocess.run(
        [*command, sys.executable, "-c", "import sys; print(sys.argv[1:])", "a b"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("['a b']\n", "")
    assert not (tmp_path / "own").is_symlink()
    assert (tmp_path / "led").readlink() == Path("/nowhere")
    assert (tmp_path / "new").readlink() == tmp_path / "it's"
    assert not (tmp_path / "no").exists()
    assert root_links.make({}) == ""


def command(text: str, role: str = "Worker") -> str:
    container = pod(objects(text), role)["spec"]["containers"][0]
    return " ".join(container["command"])


def test_only_pods_whose_role_has_the_folder_make_the_link() -> None:
    text = "%framework=tensorflow\n%ps=1\n%worker=1;%volume=data:input\n"
    assert "(('/input', '/ciao/input'),)" in command(text)
    assert "symlink" not in command(text, "PS")
    assert "(('/output', '/ciao/output'),)" in command(
        "%framework=tensorflow\n%worker=1\n%output\n"
    )
    assert "symlink" not in command("%framework=tensorflow\n%worker=1\n%output=x/\n")


def test_an_image_without_python_gets_no_link() -> None:
    text = "%framework=custom\n%image=r:1\n%worker=1\n%command=R {cell}\n%volume=data:input\n"
    spec = objects(text, api=JOB).job["spec"]["template"]["spec"]
    assert "/ciao/input" in str(spec["containers"][0]["volumeMounts"])
    assert "symlink" not in str(spec)
