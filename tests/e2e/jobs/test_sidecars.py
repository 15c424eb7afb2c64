"""Containers that an administrator adds to pods, as a service mesh does."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.frameworks.tensorflow import TensorFlow
from ciao_kernel.model import JobSpec, Manifest, State
from ciao_kernel.plugins import JobManifest
from tests.e2e.jobs.conftest import Team

HEAD = "%framework=tensorflow\n%worker=1\n"
ENDLESS = ["python3", "-c", "import time; time.sleep(600)"]


class Injector:
    """Adds a container to each pod, natively or beside the program.

    Where a webhook would change the pods, this changes the templates that the operator copies.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, image: str) -> None:
        self._image = image
        self._own = TensorFlow.manifest
        self._added: list[tuple[str, Manifest]] = []
        injector = self

        def manifest(self: Any, spec: JobSpec, pods: Mapping[str, Manifest]) -> JobManifest:
            changed = {role: injector.inject(pod) for role, pod in pods.items()}
            return injector._own(self, spec, changed)

        monkeypatch.setattr(TensorFlow, "manifest", manifest)

    def adds(self, name: str, *, native: bool, image: str = "") -> None:
        container: Manifest = {"name": name, "image": image or self._image, "command": ENDLESS}
        if native:
            container["restartPolicy"] = "Always"
        self._added.append(("initContainers" if native else "containers", container))

    def inject(self, pod: Manifest) -> Manifest:
        changed = copy.deepcopy(pod)
        for kind, container in self._added:
            changed["spec"].setdefault(kind, []).append(copy.deepcopy(container))
        return changed


@pytest.fixture
def injector(team: Team, monkeypatch: pytest.MonkeyPatch) -> Injector:
    return Injector(monkeypatch, team.images["tensorflow"])


def no_such(team: Team) -> str:
    return team.images["tensorflow"].rpartition("/")[0] + "/no-such:1"


@pytest.mark.second("faults", only="its")
@pytest.mark.parametrize("missing", ["the program's", "its own"])
def test_a_native_sidecar_hides_no_image_that_is_missing(
    team: Team, injector: Injector, missing: str
) -> None:
    own = missing == "its own"
    injector.adds("mesh", native=True)
    injector.adds("logs", native=True, image=no_such(team) if own else "")
    image = "" if own else f"%image={no_such(team)}\n"
    ended = team.run(HEAD + image + "print()\n", hopeless_wait=3.0)
    assert isinstance(ended.error, JobFailed)
    assert "worker-0 cannot start" in ended.error.message
    assert "no-such" in ended.error.message


@pytest.mark.second("faults")
def test_a_native_sidecar_keeps_no_pod_alive(team: Team, injector: Injector) -> None:
    injector.adds("mesh", native=True)
    ended = team.run(HEAD + "print('done')\n")
    assert ended.error is None, ended.error
    assert ended.display.data("worker-0") == b"done\n"
    assert "mesh" not in ended.display.notices


@pytest.mark.second("faults", only="3")
@pytest.mark.parametrize(("code", "state"), [(0, State.SUCCEEDED), (3, State.FAILED)])
def test_a_container_beside_the_program_keeps_no_cell(
    team: Team, injector: Injector, code: int, state: State
) -> None:
    injector.adds("istio-proxy", native=False)
    ended = team.run(HEAD + f"print('done', flush=True)\nraise SystemExit({code})\n")
    assert (ended.error is None) == (code == 0), ended.error
    assert ended.display.data("worker-0") == b"done\n"
    assert ended.display.status.state is state
    assert ended.display.notices.count("its container istio-proxy does not end") == 1
    ((_, status),) = team.jobs()
    assert status.state is State.RUNNING  # the operator does not know
