"""Files of %output through a registry: pushed by the real program of a pod, read by the kernel."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.output import output_registry, output_state
from ciao_kernel.backends.kubernetes.output.output_fetch import OutputFetch
from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.output import registry_program, registry_push
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.errors import CiaoError, RegistryFault, SpecError
from ciao_kernel.model import Job, JobSpec, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.build_spec import BuildSpec
from ciao_kernel.session import returned_values
from tests.helpers.certificates import make_certificate
from tests.helpers.output_fetch import notices_at_end
from tests.helpers.signals import wait_until_caught
from tests.integration.kube.test_output_log import folder
from tests.integration.oci.fake_registry import (
    PASSWORD,
    REFRESH,
    USER,
    Behaviour,
    FakeRegistry,
    Handler,
    digest,
    serving,
)

__all__ = ["folder"]
WORKER = Replica("worker", 0)
REPOSITORY = "team/cells/ciao-output"
NONE: Any = None


@dataclass
class Way:
    """The way of a job's files from its pod to this machine.

    Args:
        fake: The registry.
        folder: The program's folder.
        here: The job's folder on this machine.
        account: Entry of the Secret for the registry; none pushes without a password.
        authority: Certificate of the registry.
    """

    fake: FakeRegistry
    folder: Path
    here: Path
    account: dict[str, str] | None = None
    authority: str = ""
    limit: int = 1_000_000_000
    change: Callable[[], object] = lambda: None
    gone: bool = False
    uid: str = "one"
    code: int = 0
    words: str = ""
    message: str = ""
    more: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        host = self.fake.host
        plain = () if self.authority else (host,)
        return Settings(
            registry=f"{host}/team/cells", plain_registries=plain, registry_authority=self.authority
        )

    @property
    def secret(self) -> str | None:
        return "push" if self.account else None

    def spec(self) -> JobSpec:
        return JobSpec("python", outputs=("model/",), build=BuildSpec(push_secret=self.secret))

    def push(self) -> None:
        """Let the container push the files at the program's end."""
        marks = self.folder.parent / "marks"
        marks.mkdir(exist_ok=True)
        made = output_registry.push(self.spec(), self.settings, real=True)
        told = json.loads(made.told)
        told["message"] = str(marks.parent / "message")
        if self.account is not None:
            assert told["config"] == "/ciao-registry/config.json"
            told["config"] = str(marks.parent / "config.json")
            config = {"auths": {f"https://{self.fake.host}/v2/": self.account}}
            Path(told["config"]).write_text(json.dumps(config))
        variables = {
            registry_push.REGISTRY: json.dumps(told),
            registry_push.PROGRAM: made.program,
            replica_files.POD_UID: self.uid,
            **self.more,
        }
        words = ["push", str(marks), "30", "0", "0", str(self.limit), "model/", "absent.txt"]
        command = [sys.executable, "-I", "-S", "-c", registry_program.LOADER, *words]
        env = {**os.environ, **variables}
        with subprocess.Popen(
            command, cwd=self.folder, env=env, stderr=subprocess.PIPE, text=True
        ) as process:
            wait_until_caught(process.pid, signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            _, self.words = process.communicate()
            self.code = process.returncode
        written = Path(told["message"])
        self.message = self.words if self.code else written.read_text()
        for hidden in (PASSWORD, REFRESH, "Bearer", "Basic"):
            assert hidden not in self.words

    def bring(self) -> list[str]:
        """Run all of it, and return what is said."""
        self.push()
        self.change()
        return self.fetched()

    def fetched(self) -> list[str]:
        """Read what was pushed, and return what is said."""
        header = "%output=model/ absent.txt\n"
        job = Job(
            "job", "kubernetes", "tensorflow", (WORKER,), 1.0, place="team",
            kind_of_place="namespace", header=header, folder=str(self.here),
        )  # fmt: skip
        said: list[str] = []

        async def main() -> None:
            woken = asyncio.Event()
            fetch = OutputFetch(NONE, job, self.here, self.settings, woken.set)
            now = Status(State.SUCCEEDED, (ReplicaStatus(WORKER, State.SUCCEEDED),))
            fetch.update({}, now, {WORKER: self.pod({"running": {}})})
            if fetch.fetching:  # it waits for the container's end
                end = {"exitCode": self.code, "message": self.message}
                fetch.update(
                    {}, now, {WORKER: None if self.gone else self.pod({"terminated": end})}
                )
            said.extend(await notices_at_end(fetch, woken, 120))

        asyncio.run(main())
        return [*said, *returned_values.of_pods(job, ReturnedFiles(self.here))]

    def pod(self, state: dict[str, Any]) -> dict[str, Any]:
        program = {"name": "tensorflow", "state": {"terminated": {"exitCode": 0}}}
        return {
            "metadata": {"name": "job-worker-0", "uid": self.uid},
            "spec": {"containers": [{"name": "tensorflow"}], "restartPolicy": "Never"},
            "status": {
                "phase": "Succeeded",
                "containerStatuses": [program],
                "initContainerStatuses": [{"name": output_state.REGISTRY_NAME, "state": state}],
            },
        }

    def same(self) -> bool:
        names = ("model/net.bin", "model/zeros.bin", "model/leer")
        pairs = [(self.folder / one, self.here / one) for one in names]
        return all(one.read_bytes() == other.read_bytes() for one, other in pairs)

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.fake.manifests[REPOSITORY, f"ciao-{self.uid}"][1])
        return found

    def paths(self, verb: str) -> list[str]:
        lines = [one.line.partition("?")[0] for one in self.fake.seen]
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{verb} ")]


@pytest.fixture
def way(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Any:
    """The way through a registry that behaves as the test's parameter says."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    (folder / "model/run.sh").write_text("echo")
    (folder / "model/run.sh").chmod(0o755)
    with serving(getattr(request, "param", Behaviour())) as fake:
        yield Way(fake, folder, tmp_path / "here")


def signed_in(way: Way, **entry: str) -> Way:
    """The same with a Secret for the pod; the kernel's user has signed in on this machine."""
    way.account = entry or basic(USER, PASSWORD)
    config = {"auths": {way.fake.host: basic(USER, PASSWORD)}}
    home = Path(os.environ["HOME"]) / ".docker"
    home.mkdir(exist_ok=True)
    (home / "config.json").write_text(json.dumps(config))
    return way


def basic(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.mark.parametrize("way", [Behaviour(tags_stay=True)], indirect=True)
def test_a_tag_that_outlives_its_digest_is_deleted_too(way: Way) -> None:
    said = way.bring()
    assert said[0].startswith("brought back by the registry: model/leer")
    assert not way.fake.manifests
    verbs = [one.rpartition("/")[2] for one in way.paths("DELETE")]
    assert verbs[-1] == "ciao-one"


def test_files_come_through_the_registry_and_are_deleted_there(way: Way) -> None:
    kept: list[dict[str, Any]] = []
    way.change = lambda: kept.append(way.manifest())
    said = way.bring()
    assert way.same()
    assert said[0].startswith("brought back by the registry: model/leer (0 bytes, worker-0)")
    assert said[1:] == ["%output: no file matches absent.txt."]
    assert os.access(way.here / "model/run.sh", os.X_OK)
    assert not os.access(way.here / "model/net.bin", os.X_OK)
    assert not way.fake.manifests
    (manifest,) = kept
    assert manifest["artifactType"] == "application/vnd.ciao.output.v1"
    layers = {one["annotations"][registry_push.TITLE]: one for one in manifest["layers"]}
    data = (way.folder / "model/net.bin").read_bytes()
    assert layers["model/net.bin"]["digest"] == digest(data)
    assert layers["model/net.bin"]["size"] == len(data)


def test_a_job_that_wrote_nothing_is_an_artifact_too(way: Way) -> None:
    for file in (way.folder / "model").iterdir():
        file.unlink()
    said = way.bring()
    assert said == ["%output: no file matches model/, absent.txt."]


def test_files_of_a_pod_that_is_gone_already_come_by_its_uid(way: Way) -> None:
    way.gone = True
    way.bring()
    assert way.same()


def test_what_the_registry_has_already_is_not_sent_again(way: Way) -> None:
    way.push()
    way.fake.seen.clear()
    way.push()
    assert not way.paths("POST")
    assert len(way.paths("PUT")) == 1  # the manifest


@pytest.mark.parametrize("way", [Behaviour(auth="basic"), Behaviour(auth="token")], indirect=True)
def test_a_pod_pushes_with_the_password_of_its_secret(way: Way) -> None:
    signed_in(way).bring()
    assert way.same()
    assert not way.fake.manifests


@pytest.mark.parametrize("way", [Behaviour(auth="token")], indirect=True)
def test_a_pod_pushes_with_an_identity_token(way: Way) -> None:
    signed_in(way, identitytoken=REFRESH).bring()
    assert way.same()


@pytest.mark.parametrize("way", [Behaviour(auth="token")], indirect=True)
def test_a_token_is_for_one_repository_and_a_new_one_follows_when_it_is_over(way: Way) -> None:
    over = ["manifests", "uploads"]
    one_by_one = threading.Lock()

    def expire(handler: Handler) -> bool:
        with one_by_one:
            if handler.command == "PUT" and over and over[-1] in handler.path:
                over.pop()
                handler.server.tokens.clear()
        return False

    way.fake.how.before = expire
    signed_in(way).bring()
    assert way.same()
    scopes = [one.line for one in way.fake.seen if "/token" in one.line]
    own = [one for one in scopes if "pull%2Cpush" in one]
    assert len(own) == 3  # also where several threads push
    assert all("scope=repository%3Ateam%2Fcells%2Fciao-output%3Apull" in one for one in scopes)


@pytest.mark.parametrize(
    ("way", "text"),
    [
        (
            Behaviour(auth="basic", rights={REPOSITORY: {"pull"}}),
            "HTTP 403. Has the Secret of %pushSecret a password that may push to {name}?",
        ),
        (
            Behaviour(auth="token", rights={REPOSITORY: {"pull"}}),
            "HTTP 401. Has the Secret of %pushSecret a password that may push to {name}?",
        ),
    ],
    indirect=["way"],
)
def test_a_refused_push_is_said_with_what_may_help(way: Way, text: str) -> None:
    said = signed_in(way).bring()
    assert said[0].startswith(
        f"the files of worker-0 did not come back: the registry {way.fake.host} refused model/"
    )
    assert said[0].endswith(text.format(name=f"{way.fake.host}/{REPOSITORY}"))
    assert not way.here.joinpath("model").exists()


@pytest.mark.parametrize("way", [Behaviour(auth="basic")], indirect=True)
def test_another_server_that_takes_the_uploads_gets_no_password(way: Way) -> None:
    def take(handler: Handler) -> bool:
        handler.say(201)
        return True

    with serving(Behaviour(before=take)) as storage:
        way.fake.how.location = lambda place: place.replace(way.fake.host, storage.host)
        signed_in(way).push()
        assert {one.authorization for one in storage.seen} == {""}
    assert {one.authorization[:5] for one in way.fake.seen[1:]} - {""} == {"Basic"}
    assert way.words.endswith("refused the list of files: HTTP 400\n")


@pytest.mark.parametrize("way", [Behaviour(auth="basic")], indirect=True)
def test_a_wrong_password_is_said(way: Way) -> None:
    said = signed_in(way, **basic(USER, "wrong")).bring()
    assert "HTTP 401. Has the Secret of %pushSecret a password that may" in said[0]


@pytest.mark.parametrize("way", [Behaviour(early=413)], indirect=True)
def test_a_file_that_is_too_large_for_the_registry_is_named(way: Way) -> None:
    said = way.bring()
    assert re.fullmatch(
        f"the files of worker-0 did not come back: the registry {way.fake.host} refused "
        r"model/[\w.]+: HTTP 413\. The limit is set by its administrator, or in a proxy before "
        r"it\.",
        said[0],
    )


def test_a_registry_that_is_away_is_said(way: Way) -> None:
    way.fake.shutdown()
    way.fake.server_close()
    way.push()
    assert way.code == 1
    assert f"the registry {way.fake.host} cannot be reached from the pod: " in way.words


@pytest.mark.parametrize("way", [Behaviour(cuts=[10_000, 20_000])], indirect=True)
def test_a_push_that_is_cut_begins_again(way: Way) -> None:
    way.bring()
    assert way.same()
    assert not way.fake.how.cuts


@pytest.mark.parametrize("way", [Behaviour(blobs_break=1)], indirect=True)
def test_a_read_that_is_cut_goes_on(way: Way) -> None:
    way.bring()
    assert way.same()
    assert way.fake.how.blobs_break == 0


@pytest.mark.parametrize("way", [Behaviour(blobs_break=1)], indirect=True)
def test_a_large_file_goes_on_where_it_was_cut(way: Way) -> None:
    for file in (way.folder / "model").iterdir():
        file.unlink()
    data = os.urandom(3_000_000)
    (way.folder / "model/large.bin").write_bytes(data)
    (way.folder / "model/small.bin").write_bytes(b"small")
    way.bring()
    assert (way.here / "model/large.bin").read_bytes() == data
    assert (way.here / "model/small.bin").read_bytes() == b"small"
    layer = f"GET /v2/{REPOSITORY}/blobs/{digest(data)}"
    assert [one.line for one in way.fake.seen].count(layer) == 2


def test_files_are_deleted_by_another_try_after_a_passing_fault(way: Way) -> None:
    refused: list[str] = []

    def refuse(handler: Handler) -> bool:
        if handler.command != "DELETE" or "manifests" not in handler.path or refused:
            return False
        refused.append(handler.path)
        handler.error(503, "UNAVAILABLE")
        return True

    way.fake.how.before = refuse
    said = way.bring()
    assert way.same()
    assert refused
    assert not [one for one in said if "stay in" in one]


@pytest.mark.parametrize("way", [Behaviour(deletes=405)], indirect=True)
def test_a_registry_that_deletes_nothing_keeps_the_files(way: Way) -> None:
    said = way.bring()
    assert way.same()
    assert said[0] == (
        f"files of %output stay in {way.fake.host}/{REPOSITORY}, which deletes nothing for you."
    )


@pytest.mark.parametrize("way", [Behaviour(tags_stay=True)], indirect=True)
@pytest.mark.parametrize("code", [400, 405])
def test_a_registry_that_deletes_by_digest_alone_has_deleted_the_files(way: Way, code: int) -> None:
    refused: list[str] = []

    def refuse(handler: Handler) -> bool:
        version = handler.path.rpartition("/")[2]
        if handler.command != "DELETE" or version.startswith("sha256:"):
            return False
        refused.append(version)
        handler.error(code, "UNSUPPORTED")
        return True

    way.fake.how.before = refuse
    said = way.bring()
    assert refused == ["ciao-one"]
    assert not [one for one in said if "stay in" in one]


def test_files_that_another_kernel_has_fetched_are_not_there(way: Way) -> None:
    way.bring()
    way.here = way.here.parent / "another"
    said = way.fetched()
    assert "does not have them any more: they were fetched elsewhere, or deleted" in said[0]


def test_the_files_of_a_stopped_program_are_not_pushed(way: Way) -> None:
    (way.folder.parent / "marks").mkdir()
    (way.folder.parent / "marks" / replica_files.STOPPED).touch()
    said = way.bring()
    assert "it was stopped before its program had ended." in said[0]
    assert not way.fake.seen


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("pki"))


@pytest.mark.parametrize("known", [True, False])
def test_the_authority_of_the_setting_goes_with_the_pod(
    way: Way, pki: Path, tmp_path: Path, known: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "crt", pki / "key")
    with serving(Behaviour(auth="token"), context) as fake:
        way.fake, way.authority = fake, str(pki / "crt")
        signed_in(way)
        if known:
            way.bring()
            assert way.same()
            return
        other = tmp_path / "other"
        other.mkdir()
        way.authority = str(make_certificate(other) / "crt")
        way.push()
    text = f"the registry {fake.host} cannot be reached from the pod: self-signed certificate\n"
    assert (way.code, way.words) == (1, text)


def of_another(way: Way) -> None:
    """Let the tag name what somebody else has pushed; the digest is another one then."""
    raw = json.dumps({**way.manifest(), "annotations": {registry_push.POD: "two"}}).encode()
    way.fake.push(REPOSITORY, "ciao-one", raw)


def test_an_artifact_of_another_pod_is_not_taken(way: Way) -> None:
    way.gone, way.change = True, lambda: of_another(way)
    assert "is of another pod." in way.bring()[0]
    assert not way.here.joinpath("model").exists()


def test_the_digest_of_the_pod_counts_and_not_the_tag(way: Way) -> None:
    way.change = lambda: of_another(way)
    way.bring()
    assert way.same()


def test_a_damaged_file_gets_no_name(way: Way) -> None:
    def harm() -> None:
        for key, data in list(way.fake.blobs.items()):
            if len(data) == 300_000:
                way.fake.blobs[key] = b"x" * len(data)

    way.change = harm
    assert "did not come back: model/net.bin arrived damaged." in way.bring()[0]
    assert not way.here.joinpath("model/net.bin").exists()
    assert not list(way.here.rglob("*.part"))


def test_a_path_that_leads_out_is_refused(way: Way) -> None:
    def lead() -> None:
        body = way.manifest()
        body["layers"][0]["annotations"][registry_push.TITLE] = "../../out"
        way.fake.push(REPOSITORY, "ciao-one", json.dumps(body).encode())

    way.gone, way.change = True, lead
    assert "which nobody has asked for" in way.bring()[0]
    assert not list(way.here.parent.rglob("out"))


def test_what_is_no_artifact_is_refused(way: Way) -> None:
    way.gone = True
    way.change = lambda: way.fake.push(REPOSITORY, "ciao-one", b"{}")
    assert "is not what a pod of ciao pushes." in way.bring()[0]


def test_too_many_bytes_are_not_pushed(way: Way) -> None:
    way.limit = 1000
    said = way.bring()
    assert len(way.paths("PUT")) == 3  # the list, the layer that stands for none, the manifest
    assert said[0] == (
        "the files of worker-0 did not come back: its files have 400.0 kB, and fetchLimit was "
        "1.0 kB for this job. `%ciao config fetchLimit=…` raises the limit."
    )


def test_links_of_a_program_lead_to_no_file_of_the_container(way: Way) -> None:
    """The container has the Secret: neither marks nor the folder of copies may be links."""
    marks = way.folder.parent / "marks"
    marks.mkdir()
    secret = way.folder.parent / "secret.json"
    secret.write_text('{"hunter2": "why"}')
    (marks / replica_files.NOT_COPIED).symlink_to(secret)
    said = way.bring()
    assert way.same()
    assert "hunter2" not in "".join(said)
    (way.folder.parent / "link").symlink_to(way.folder)
    way.more = {replica_files.COPIED: str(way.folder.parent / "link")}
    way.push()
    assert way.code == 1
    assert way.words == "the folder with the copies of the files is a link\n"


# ------------------------------------------------------------------ before the job exists


def checked(way: Way, **changes: Any) -> CiaoError | None:
    target = Target(NONE, "team")
    try:
        asyncio.run(output_registry.check(way.spec(), target, replace(way.settings, **changes)))
    except CiaoError as error:
        return error
    return None


def test_a_registry_without_passwords_needs_no_secret(way: Way) -> None:
    assert checked(way) is None
    assert not way.fake.uploads


@pytest.mark.parametrize("way", [Behaviour(auth="basic"), Behaviour(auth="token")], indirect=True)
def test_pods_that_would_need_a_password_need_a_secret(way: Way) -> None:
    error = checked(way)
    assert isinstance(error, SpecError)
    assert error.message == (
        f"pods may not push to {way.fake.host}/{REPOSITORY} without a password (HTTP 401)."
    )
    assert "%pushSecret=NAME" in error.hint
    assert checked(signed_in(way)) is None


def needs_a_repository(status: int) -> Callable[[Handler], bool]:
    """As Amazon ECR: nothing is pushed into a repository that does not exist."""

    def refuse(handler: Handler) -> bool:
        if handler.command == "POST" and "/blobs/uploads/" in handler.path:
            handler.error(status, {404: "NAME_UNKNOWN"}.get(status, "DENIED"))
            return True
        return False

    return refuse


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize(
    ("status", "message"), [(404, "has no such repository"), (405, "is read-only")]
)
def test_a_repository_that_takes_no_push_is_an_error_before_the_job(
    way: Way, status: int, message: str, secret: bool
) -> None:
    way.fake.how.before = needs_a_repository(status)
    error = checked(signed_in(way) if secret else way)
    assert isinstance(error, SpecError)
    assert message in error.message
    assert f"{way.fake.host}/{REPOSITORY}" in error.message
    assert "%registry=" in error.hint
    assert (REPOSITORY in error.hint) is (status == 404)


@pytest.mark.parametrize(
    "way",
    [Behaviour(auth=auth, rights={REPOSITORY: {"pull"}}) for auth in ("basic", "token")],
    indirect=True,
)
def test_a_login_here_that_may_only_read_is_enough(way: Way) -> None:
    """The account in the Secret, which the pod uses, is another one."""
    assert checked(signed_in(way)) is None


@pytest.mark.parametrize("way", [Behaviour(auth="token")], indirect=True)
def test_the_upload_that_was_tried_is_cancelled(way: Way) -> None:
    assert checked(signed_in(way)) is None
    assert any("POST" in line for line in way.fake.lines())
    assert not way.fake.uploads


def test_no_registry_is_an_error(way: Way) -> None:
    error = checked(way, registry="")
    assert isinstance(error, SpecError)
    assert error.message == "by:registry needs a registry, and none is named."


def test_a_registry_that_does_not_answer_is_an_error(way: Way) -> None:
    way.fake.shutdown()
    way.fake.server_close()
    error = checked(way)
    assert isinstance(error, RegistryFault)
    assert error.message.endswith("does not answer: nothing listens there.")
    assert error.hint
