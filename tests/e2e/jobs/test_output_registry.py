"""Files that come back from pods through a registry: without passwords, or with one in a Secret."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faults import registries
from tests.cluster.faults.registries import Account, Registry, pull_secret
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import JOBS, ROLE, Team, made, rules
from tests.e2e.jobs.test_output_files import BOTH, DETAILS, folder_of
from tests.e2e.workers import own

ACCOUNT = Account("pods", "secret of the pods", ("pull", "push", "delete"))
LOOKS = """
import os, time
# The first process gets the end of a process whose parent is gone.
child = os.fork()
if child == 0:
    if os.fork() == 0:
        open("orphan", "w").write(str(os.getpid()))
        os._exit(3)
    os._exit(0)
os.waitpid(child, 0)
for _ in range(600):
    if os.path.exists("orphan") and open("orphan").read():
        if not os.path.exists("/proc/" + open("orphan").read()):
            print("the orphan is gone", flush=True)
            break
    time.sleep(0.1)
seen = [one for one in os.listdir("/proc") if one.isdigit()]
reached = [one for one in seen if os.path.exists("/proc/%s/root/ciao-registry" % one)]
print("passwords of", reached, "by process", os.getppid(), flush=True)
"""


@pytest.fixture
def plain(namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user who may neither run commands in pods nor read Secrets."""
    return made(namespace, tmp_path, monkeypatch, [*rules(ROLE), *rules(JOBS)])


@pytest.mark.second("operators")
def test_files_come_back_through_a_registry_that_asks_nobody(
    local_cluster: Cluster, plain: Team
) -> None:
    host, repository = local_cluster.at.registry, f"tests/{plain.namespace.name}"
    ended = plain.run(
        f"{BOTH}%output=model/ by:registry\n{DETAILS}",
        registry=f"{host}/{repository}",
        plain_registries=(host,),
    )
    assert ended.error is None, ended.error
    folder = folder_of(ended)
    digest = ended.display.data("worker-0").decode().strip()
    assert hashlib.sha256((folder / "model/net.pt").read_bytes()).hexdigest() == digest
    assert (folder / "worker-1/model/log.csv").read_text() == "worker-1"
    assert "brought back by the registry: model/closed" in ended.display.notices
    assert tags(f"http://{host}/v2/{repository}/ciao-output/tags/list") == []


def tags(address: str) -> list[str]:
    """What a registry has in a repository."""
    with contextlib.suppress(HTTPError), urlopen(address, timeout=30) as answer:
        return list(json.load(answer)["tags"] or ())
    return []


@pytest.mark.second("operators")
@pytest.mark.parametrize("api", ["v1", "job"])
def test_the_password_of_a_secret_is_out_of_the_programs_reach(
    local_cluster: Cluster, plain: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    kind = own(registries.TOKEN_TLS)
    with Registry(local_cluster, kind, [ACCOUNT]) as registry:
        settings = {
            "registry": f"{registry.host}/tests/{plain.namespace.name}",
            "registry_authority": str(registry.authority),
        }
        secret = pull_secret(registry.host, ACCOUNT, "push")
        plain.namespace.create_objects(secret)
        (tmp_path / "config.json").write_text(secret["stringData"][".dockerconfigjson"])
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        text = f"%framework=tensorflow\n%worker=1\n%api={api}\n%output=model/ by:registry\n"
        code = DETAILS + LOOKS
        refused = plain.run(text + code, **settings)
        ended = plain.run(f"{text}%pushSecret=push\n{code}", **settings)
    assert refused.error is not None
    assert "without a password (HTTP 401)" in refused.error.message
    assert ended.error is None, (ended.error, ended.display.notices)
    digest, *said = ended.display.data("worker-0").decode().splitlines()
    net = folder_of(ended) / "model/net.pt"
    assert net.exists(), ended.display.notices
    assert hashlib.sha256(net.read_bytes()).hexdigest() == digest
    assert said == ["the orphan is gone", "passwords of [] by process 1"]
    assert "files of %output stay in" not in ended.display.notices
