"""Files that come back from pods through a claim: no pod of the job is held for them."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from pathlib import Path

import pytest

from ciao_kernel.errors import BackendError, ClusterFault, DirectiveError
from ciao_kernel.model import Owner
from ciao_kernel.session import fetching
from ciao_kernel.session.fetching import Fetched
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import JOBS, RBAC, ROLE, Team, leftovers, made, rules
from tests.e2e.jobs.test_output_files import BOTH, DETAILS, folder_of

READS = RBAC / "claim-role.yaml"
EXEC = RBAC / "exec-role.yaml"
STORES = """
import os, pathlib
pathlib.Path("output/net.pt").write_bytes(b"weights" * 1000)
pathlib.Path("log.csv").write_text(os.environ["CIAO_REPLICA"])
print("there:", sorted(os.listdir("output")), flush=True)
"""
LISTS = """
import os
for folder, below, files in sorted(os.walk("data")):
    print(folder, below, files)
"""


@pytest.fixture
def team(namespace: Namespace, claim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Team:
    """A user who may make pods that read a claim."""
    parts = (ROLE, JOBS, EXEC, READS)
    return made(namespace, tmp_path, monkeypatch, [one for file in parts for one in rules(file)])


def on_claim(team: Team, claim: str) -> str:
    """What is on the claim, as a job sees it that mounts it."""
    seen = team.run(f"%framework=tensorflow\n%worker=1\n%volume={claim}:data\n{LISTS}")
    assert seen.error is None, seen.error
    return seen.display.data("worker-0").decode()


def readers(team: Team) -> list[str]:
    return [one for one in leftovers(team, "pods") if "ciao-output-reader" in one]


@pytest.mark.second("operators")
def test_files_come_back_through_a_claim_and_are_removed_there(team: Team, claim: str) -> None:
    ended = team.run(
        f"{BOTH}%output=model/ absent.csv by:claim\n{DETAILS}", output_claim=f"{claim}/team"
    )
    assert ended.error is None, ended.error
    folder = folder_of(ended)
    assert (folder / "model/net.pt").exists(), ended.display.notices
    digest = ended.display.data("worker-0").decode().strip()
    assert hashlib.sha256((folder / "model/net.pt").read_bytes()).hexdigest() == digest
    assert (folder / "worker-1/model/log.csv").read_text() == "worker-1"
    assert f"files of %output come back by the claim {claim}/team." in ended.display.notices
    assert "brought back by the claim: model/closed" in ended.display.notices
    assert "no file matches absent.csv" in ended.display.notices
    until(lambda: readers(team) == [], "the pod that read to be gone", 60)
    assert on_claim(team, claim) == (
        "data ['team'] []\ndata/team ['ciao-output'] []\ndata/team/ciao-output [] []\n"
    )


@pytest.mark.second("operators")
def test_what_the_program_writes_to_its_claim_is_fetched_and_stays(team: Team, claim: str) -> None:
    ended = team.run(
        f"{BOTH}%volume={claim}/run:output\n%output=output/ log.csv by:claim\n{STORES}"
    )
    assert ended.error is None, (ended.error, ended.display.notices)
    folder = folder_of(ended)
    assert (folder / "output/net.pt").exists(), ended.display.notices
    assert (folder / "output/net.pt").read_bytes() == b"weights" * 1000
    assert (folder / "worker-1/log.csv").read_text() == "worker-1"
    assert "no file matches" not in ended.display.notices
    seen = on_claim(team, claim)
    assert "data/run [] ['net.pt']\n" in seen
    assert "data/ciao-output [] []\n" in seen
    assert not (folder / "output/ciao-output").exists()


@pytest.mark.second("operators")
def test_a_detached_job_gives_its_files_after_its_end(team: Team, claim: str) -> None:
    """Its pods hold nothing meanwhile, and may be gone."""
    header = f"%framework=python\n%api=job\n%image={team.namespace.cluster.image('tools')}\n"
    cell = f"{header}%name=late\n%worker=1\n%checkpoint={claim}\n%detach\n%output=model/ by:claim\n"
    started = team.run(cell + DETAILS)
    assert started.error is None, started.error
    assert f"until then they stay on the claim {claim}" in started.display.notices
    team.namespace.kubectl("wait", "job/late", "--for=condition=Complete", "--timeout=120s")
    team.namespace.kubectl("delete", "pod", "--all", "--wait=true")
    shown: list[str] = []

    async def fetch(session: Session) -> Fetched:
        backend, job, _ = await session.find("late")
        paths = ["model/"]
        return await fetching.fetch(
            backend, job, job.replicas, paths, team.settings(), lambda one: shown.append(str(one))
        )

    fetched = team._ask(fetch)
    assert fetched.lines[0].startswith("brought back by the claim: model/closed (1 byte, worker-0)")
    until(lambda: readers(team) == [], "the pod that read to be gone", 60)
    assert not any("could not be removed" in one for one in shown)

    async def again(session: Session) -> Fetched:
        backend, job, _ = await session.find("late")
        shutil.rmtree(Path(job.results))
        return await fetching.fetch(
            backend, job, job.replicas, ["model/"], team.settings(), lambda _: None
        )

    with pytest.raises(BackendError, match="they are there no more"):
        team._ask(again)


@pytest.mark.second("operators")
def test_jobs_of_other_users_have_their_files_on_one_claim(team: Team, claim: str) -> None:
    opened = team.run(
        f"%framework=tensorflow\n%worker=1\n%volume={claim}:data\n"
        "import os\nos.chmod('data', 0o777)\n"
    )
    assert opened.error is None, opened.error
    for user in (1001, 1002):
        (team.folder / "patch.yaml").write_text(
            f"spec: {{securityContext: {{runAsUser: {user}, runAsGroup: {user}}}}}\n"
        )
        ended = team.run(
            f"{BOTH}%podPatch=patch.yaml\n%output=model/ by:claim\n{DETAILS}",
            output_claim=claim,
        )
        assert ended.error is None, (ended.error, ended.display.notices)
        folder = folder_of(ended)
        assert (folder / "worker-1/model/log.csv").exists(), ended.display.notices
        assert "could not be removed" not in ended.display.notices
    seen = team.run(
        f"%framework=tensorflow\n%worker=1\n%volume={claim}:data\n"
        "import os\nabout = os.stat('data/ciao-output')\n"
        "print(oct(about.st_mode), about.st_uid, os.listdir('data/ciao-output'))\n"
    )
    assert seen.display.data("worker-0").decode() == "0o41733 1001 []\n"


@pytest.mark.second("operators")
def test_two_kernels_that_fetch_at_once_get_whole_files_or_none(
    team: Team, claim: str, tmp_path: Path
) -> None:
    header = f"%framework=python\n%api=job\n%image={team.namespace.cluster.image('tools')}\n"
    cell = f"{header}%name=both\n%worker=1\n%detach\n%output=model/ by:claim\n"
    assert team.run(cell + DETAILS, output_claim=claim).error is None
    team.namespace.kubectl("wait", "job/both", "--for=condition=Complete", "--timeout=120s")

    async def fetch(storage: Path, said: list[str]) -> Path | BackendError:
        settings, registry = team.settings(storage=storage), Registry({})
        try:
            backend, job, _ = await Session(registry, Owner("a test"), settings).find("both")
            await fetching.fetch(
                backend, job, job.replicas, ["model/"], settings, lambda one: said.append(str(one))
            )
            return Path(job.results)
        except BackendError as error:  # the other one had them before this one began
            return error
        finally:
            await registry.close()

    async def main() -> tuple[list[Path | BackendError], list[str]]:
        said: list[str] = []
        work = [fetch(tmp_path / f"kernel-{number}", said) for number in range(2)]
        return list(await asyncio.gather(*work)), said

    found, said = asyncio.run(main())
    late = [one for one in found if isinstance(one, BackendError)]
    assert len(late) < 2
    assert all("they were fetched" in one.message for one in late)
    files = {(one / "model/net.pt").read_bytes() for one in found if isinstance(one, Path)}
    assert [len(one) for one in files] == [2_000_000]
    assert not any("could not be removed" in text or "did not come" in text for text in said)
    assert on_claim(team, claim) == "data ['ciao-output'] []\ndata/ciao-output [] []\n"


@pytest.mark.second("operators")
def test_a_claim_that_is_missing_is_told_before_anything_exists(team: Team) -> None:
    cell = f"{BOTH}%output=model/ by:claim\n{DETAILS}"
    unnamed = team.run(cell)
    assert isinstance(unnamed.error, DirectiveError)
    assert "by:claim needs a claim" in unnamed.error.message
    missing = team.run(cell, output_claim="nowhere")
    assert isinstance(missing.error, DirectiveError)
    assert "there is no claim nowhere in the namespace" in missing.error.message
    assert team.left() == []


@pytest.mark.second("operators")
def test_missing_rights_are_told_before_anything_exists(
    namespace: Namespace, claim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made(namespace, tmp_path, monkeypatch, [*rules(ROLE), *rules(EXEC)])
    refused = team.run(f"{BOTH}%output=model/ by:claim\n{DETAILS}", output_claim=claim)
    assert isinstance(refused.error, ClusterFault)
    assert "missing rights: create pods, delete pods" in refused.error.message
    assert team.left() == []
