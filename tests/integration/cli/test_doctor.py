"""``ciao doctor``, ``install`` and ``uninstall``: is this installation sound?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.session.plugin_registry import Registry
from tests.helpers.api_server import ApiServer
from tests.integration.cli.command import User, still, until
from tests.integration.oci.fake_registry import serving


def images(**known: str) -> str:
    """Images for all frameworks; those that are not known are in a registry that nobody runs."""
    names = Registry({}).table.names.frameworks
    return " ".join(f"{name}={known.get(name, '127.0.0.1:9/none:1')}" for name in names)


def findings(ciao: User, **env: str) -> tuple[int, list[dict[str, Any]]]:
    if "KUBECONFIG" in env:  # the default images are in registries of the internet
        env = {"CIAO_IMAGES": images(), **env}
    done = ciao("doctor", "--output", "json", env=env)
    found = done.json
    assert all(set(one) == {"level", "what", "fix"} for one in found)
    assert all(one["fix"] for one in found if one["level"] != "ok"), "a finding without a fix"
    assert done.code == int(any(one["level"] == "wrong" for one in found))
    return done.code, found


def wrong(ciao: User, **env: str) -> list[dict[str, Any]]:
    return [one for one in findings(ciao, **env)[1] if one["level"] == "wrong"]


@pytest.fixture
def installed(ciao: User) -> Path:
    """The user's kernelspec, so that no finding depends on how these tests were set up."""
    done = ciao("install", "--user")
    assert done.code == 0, done.err
    return Path(done.out.split()[-1])


def spec(ciao: User, name: str, text: str) -> None:
    folder = ciao.home / ".local" / "share" / "jupyter" / "kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(text)


@pytest.mark.usefixtures("installed")
def test_a_sound_installation_has_nothing_wrong(ciao: User) -> None:
    code, found = findings(ciao)
    assert code == 0
    text = " ".join(one["what"] for one in found)
    for part in ("Python 3.", "ipykernel", "tensorflow", "pytorch", "kernelspec ciao", "GiB free"):
        assert part in text
    assert "Kubernetes" in text
    for part in ("custom", "the package sys"):  # nothing of these can be missing
        assert part not in text
    plain = ciao("doctor")
    assert plain.code == 0
    assert all(still(one["what"]) in still(plain.out) for one in found)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("network", "said"),
    [("host", "every machine that can reach this one"), ("isolated", "a network of its own")],
)
def test_who_can_reach_local_jobs_is_a_finding(ciao: User, network: str, said: str) -> None:
    _, found = findings(ciao, CIAO_LOCAL_NETWORK=network)
    assert any(said in one["what"] or "not let jobs have" in one["what"] for one in found)


@pytest.mark.usefixtures("installed")
def test_a_kernelspec_whose_python_is_gone_is_wrong(ciao: User) -> None:
    argv = ["/nowhere/bin/python", "-m", "ciao_kernel", "-f", "{connection_file}"]
    spec(ciao, "old", json.dumps({"argv": argv, "display_name": "Old"}))
    (fault,) = wrong(ciao)
    assert "kernelspec old: /nowhere/bin/python is gone" in fault["what"]
    assert fault["fix"].endswith("ciao install --user --name old")


@pytest.mark.usefixtures("installed")
def test_a_kernelspec_whose_python_has_no_ciao_is_wrong(ciao: User, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys._base_executable} -S "$@"\n')  # type: ignore[attr-defined]
    bare.chmod(0o755)
    spec(ciao, "bare", json.dumps({"argv": [str(bare), "-m", "ciao_kernel"], "display_name": "B"}))
    (fault,) = wrong(ciao)
    assert f"kernelspec bare: {bare} has no ciao" in fault["what"]


@pytest.mark.second("faults", only="argv")
@pytest.mark.parametrize("text", ["{", "[]", '{"argv": []}', '{"argv": 1}'])
def test_a_broken_kernelspec_is_wrong(ciao: User, text: str) -> None:
    spec(ciao, "ciao", text)
    faults = wrong(ciao, JUPYTER_PREFER_ENV_PATH="0")
    assert any("kernel.json is broken" in one["what"] for one in faults)


@pytest.mark.usefixtures("installed")
def test_a_storage_that_cannot_be_written_is_wrong(ciao: User) -> None:
    file = ciao.file("a-file", "")
    for place in (file, file / "below", Path("/proc/nothing")):
        (fault,) = wrong(ciao, CIAO_STORAGE=str(place))
        assert str(place) in fault["what"]
        assert "ciao config storage=" in fault["fix"]


@pytest.mark.usefixtures("installed")
def test_every_wrong_setting_is_found(ciao: User) -> None:
    ciao.config.parent.mkdir(parents=True)
    ciao.config.write_text("colour = 'never'\n")
    faults = wrong(ciao, CIAO_LINGER="x", CIAO_STOP_GRACE="y")
    places = [str(ciao.config), "$CIAO_STOP_GRACE", "$CIAO_LINGER"]
    assert all(place in fault["what"] for place, fault in zip(places, faults, strict=True))
    assert "Did you mean color?" in faults[0]["fix"]


@pytest.mark.usefixtures("installed")
def test_an_interpreter_of_the_replicas_that_is_gone_is_wrong(ciao: User) -> None:
    (fault,) = wrong(ciao, CIAO_PYTHON="/nowhere/python")
    assert "/nowhere/python" in fault["what"]


def test_install_and_uninstall(ciao: User) -> None:
    prefix = ciao.root / "prefix"
    done = ciao("install", "--prefix", str(prefix), "--name", "mine", "--display-name", "My ciao")
    folder = prefix / "share" / "jupyter" / "kernels" / "mine"
    assert (done.code, done.out) == (0, f"installed the kernelspec mine in {folder}\n")
    made = json.loads((folder / "kernel.json").read_text())
    assert Path(made["argv"][0]).samefile(sys.executable)
    assert made["display_name"] == "My ciao"
    done = ciao("uninstall", "--prefix", str(prefix), "--name", "mine")
    assert (done.code, done.out) == (0, f"removed {folder}\n")
    assert not folder.exists()


def test_install_and_uninstall_say_what_is_wrong(ciao: User) -> None:
    prefix = str(ciao.root / "prefix")
    for words, code, says in (
        (["install", "--user", "--sys-prefix"], 2, "not allowed with"),
        (["install", "--prefix", prefix, "--name", "a b"], 2, "'a b' cannot be a kernel's name"),
        (["install", "--prefix", str(ciao.file("file", ""))], 1, "file"),
        (["uninstall", "--prefix", prefix], 1, "there is no kernelspec 'ciao'"),
    ):
        done = ciao(*words)
        assert (done.code, done.out) == (code, ""), words
        assert says in done.err


@pytest.mark.usefixtures("installed")
def test_a_cluster_that_cannot_be_used_is_wrong(ciao: User, tmp_path: Path) -> None:
    (fault,) = wrong(ciao, KUBECONFIG=str(tmp_path / "typo"))
    assert str(tmp_path / "typo") in fault["what"]
    config = tmp_path / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: far\n"
        "clusters: [{name: far, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: ada, user: {token: secret-1}}]\n"
        "contexts: [{name: far, context: {cluster: far, user: ada}}]\n"
    )
    (fault,) = wrong(ciao, KUBECONFIG=str(config))
    assert "the cluster of context far (https://127.0.0.1:1) does not answer" in fault["what"]
    assert "secret-1" not in str(fault)


@pytest.mark.usefixtures("installed")
def test_the_images_of_the_frameworks_are_looked_up(ciao: User, tmp_path: Path) -> None:
    with ApiServer(tmp_path) as server, serving() as registry:
        registry.push("team/tf", "1", b"{}")
        good, missing = f"{registry.host}/team/tf:1", f"{registry.host}/team/torch:1"

        def answered() -> dict[str, str]:
            """What is found when the registry has answered in time."""
            _, found = findings(
                ciao,
                KUBECONFIG=str(server.kubeconfig),
                CIAO_IMAGES=images(tensorflow=good, pytorch=missing),
                CIAO_PLAIN_REGISTRIES=registry.host,
            )
            said = {one["level"]: one["what"] for one in found if registry.host in one["what"]}
            return {} if "does not answer" in " ".join(said.values()) else said

        said = until(answered, "the registry's answers")
    assert said == {
        "ok": f"the image {good} of tensorflow jobs exists",
        "wrong": f"there is no image {missing}, which pytorch jobs on the cluster use",
    }


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("operator", "trainer", "said"),
    [
        (True, False, []),
        (False, False, ["jobs run as Indexed Jobs"]),
        (False, True, ["jobs run as TrainJobs of Kubeflow Trainer"]),
        (True, True, ["%api=trainer runs TrainJobs"]),
    ],
)
def test_a_cluster_without_the_operator_runs_other_jobs(
    ciao: User, tmp_path: Path, operator: bool, trainer: bool, said: list[str]
) -> None:
    with ApiServer(tmp_path, operator=operator, trainer=trainer) as server:
        code, found = findings(ciao, KUBECONFIG=str(server.kubeconfig))
    parts = ("training operator", "Kubeflow Trainer")
    notes = [one["what"] for one in found if any(part in one["what"] for part in parts)]
    assert code == 0
    assert [one.rpartition(": ")[2] for one in notes] == said
