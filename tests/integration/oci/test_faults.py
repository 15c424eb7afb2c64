"""Registries that are busy, broken, full, strange or hostile: one clear error, or none at all."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci import connections, registry
from ciao_kernel.oci.image import Platform
from ciao_kernel.oci.layer import File, pack
from ciao_kernel.oci.reference import parse
from ciao_kernel.oci.registry import Registry
from tests.integration.oci.conftest import JANE, User
from tests.integration.oci.fake_registry import (
    INDEX,
    MANIFEST,
    Behaviour,
    FakeRegistry,
    digest,
    push_base,
    serving,
)

Serve = Callable[..., FakeRegistry]
Make = Callable[..., User]


def go(kernel: User, fake: FakeRegistry, base: str = "bases/python:1") -> Any:
    return kernel.append(f"{fake.host}/{base}", f"{fake.host}/team/cells")


def tags(fake: FakeRegistry) -> set[str]:
    return {tag for repository, tag in fake.manifests if repository == "team/cells"}


class Sometimes:
    """Answers some requests itself, so many times.

    Args:
        method: Of the requests.
        status: Of the answer.
        times: How often.
        body: Of the answer.
        headers: Of the answer.
    """

    def __init__(
        self, method: str, status: int, times: int = 10**6, body: bytes = b"", **headers: str
    ) -> None:
        self.method, self.status, self.left, self.body = method, status, times, body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.came = 0

    def __call__(self, handler: Any) -> bool:
        if handler.command != self.method:
            return False
        self.came += 1
        if not self.left:
            return False
        self.left -= 1
        handler.say(self.status, self.body, **self.headers)
        return True


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT"])
@pytest.mark.parametrize(
    ("status", "headers"),
    [(429, {"Retry_After": "1"}), (429, {}), (503, {"Retry_After": "0"}), (503, {}), (500, {})],
)
def test_what_passes_is_waited_for(
    serve: Serve, user: Make, method: str, status: int, headers: dict[str, str]
) -> None:
    fake = serve(before=Sometimes(method, status, 3, **headers))
    push_base(fake)

    assert go(user(fake), fake).tag in tags(fake)


@pytest.mark.parametrize(
    ("method", "status", "said", "why", "most"),
    [  # of PUTs there are two, for the config is sent beside the layer
        ("POST", 405, "", "is read-only (push to {host}/team/cells)", 1),
        ("POST", 403, "", "requires authentication (push to {host}/team/cells)", 2),
        ("PUT", 413, "", "upload is too large", 2),
        ("POST", 403, "DENIED: project is in read-only mode", "is read-only (push", 2),
        ("POST", 503, "UNAVAILABLE: read only", "is read-only (push", 5),
        ("PUT", 507, "", "is full (push to {host}/team/cells).", 2),
        ("PUT", 500, "UNKNOWN: no space left on device", "is full (push to", 2),
        ("PUT", 412, "PROJECTPOLICYVIOLATION: quota exceeded.", "quota exceeded", 2),
        ("PUT", 403, "DENIED: will exceed the configured upper limit of 1.0 GiB.", "is full", 4),
        ("GET", 502, "", "answered 502", 5),
        ("GET", 429, "TOOMANYREQUESTS: You have reached your pull rate limit", "too many", 1),
        ("POST", 404, "NAME_UNKNOWN: ", "has no such repository", 2),
        ("PUT", 400, "DIGEST_INVALID: not so", "answered 400 (push to {host}/team/cells)", 2),
        ("POST", 301, "", "does not answer like a registry", 1),
        ("PUT", 200, "", "does not answer like a registry", 2),
    ],
)
def test_what_does_not_pass_is_one_clear_error(
    serve: Serve, user: Make, method: str, status: int, said: str, why: str, most: int
) -> None:
    code, _, message = said.partition(": ")
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode() if said else b"no"
    answers = Sometimes(method, status, body=body, Retry_After="3600")
    fake = serve(before=answers)
    push_base(fake, "team/cells" if method == "PUT" else "bases/python")
    kernel = user(fake, known=False)

    fault = kernel.fault(
        lambda: go(kernel, fake, "team/cells:1" if method == "PUT" else "bases/python:1")
    )

    assert why.format(host=fake.host) in fault.message
    assert message.rstrip(".") in fault.message
    assert fault.message.endswith(".")
    assert not fault.message.endswith("..")
    assert fault.hint
    assert answers.came <= most
    assert not [tag for tag in tags(fake) if tag.startswith("ciao-")]


@pytest.mark.parametrize("dies_at", [1, 1000, 70_000])
def test_a_registry_that_dies_in_an_upload(serve: Serve, user: Make, dies_at: int) -> None:
    near, far = serve(dies_at=dies_at), serve()
    push_base(far)

    made = user(near, far).append(f"{far.host}/bases/python:1", f"{near.host}/team/cells")

    assert made.tag in tags(near)


def test_a_registry_that_dies_in_every_upload(serve: Serve, user: Make) -> None:
    near, far = serve(dies_at=70_000, deaths=100), serve()
    push_base(far)
    kernel = user(near, far)

    fault = kernel.fault(
        lambda: kernel.append(f"{far.host}/bases/python:1", f"{near.host}/team/cells")
    )

    assert f"the registry {near.host} does not answer" in fault.message
    assert 100 - near.how.deaths == 5
    assert not tags(near)


def test_an_answer_that_comes_before_the_body_is_heard(
    serve: Serve, user: Make, tmp_path: Path
) -> None:
    import random

    fake = serve(early=413)
    push_base(fake, "team/cells")
    kernel = user(fake)
    packages = pack([File("a", random.Random(1).randbytes(30 << 20))], tmp_path / "layer")
    image = f"{fake.host}/team/cells"

    fault = kernel.fault(lambda: kernel.append(f"{image}:1", image, layers=[packages]))

    assert "upload is too large" in fault.message


def test_a_base_that_breaks_off_is_asked_for_again_and_then_named(serve: Serve, user: Make) -> None:
    near, far = serve(), serve(blobs_break=2)
    push_base(far)
    kernel = user(near, far)
    base, target = f"{far.host}/bases/python:1", f"{near.host}/team/cells"

    far.how.blobs_break = 2
    assert kernel.append(base, target).tag in tags(near)

    far.how.blobs_break = 100
    fault = kernel.fault(lambda: kernel.append(base, f"{near.host}/team/other"))
    assert fault.message.startswith(f"the download of a layer of {base} broke off")


@pytest.mark.parametrize("change", [b"", b"longer"])
def test_a_base_that_is_not_as_long_as_it_says(serve: Serve, user: Make, change: bytes) -> None:
    near, far = serve(), serve()
    push_base(far)
    for key, blob in far.blobs.items():
        if len(blob) > 100_000:
            far.blobs[key] = blob + change if change else blob[:-1]
    kernel = user(near, far)

    fault = kernel.fault(
        lambda: kernel.append(f"{far.host}/bases/python:1", f"{near.host}/team/cells")
    )

    assert "does not have the 128000 bytes of its manifest" in fault.message
    assert not near.manifests


def test_a_base_with_a_wrong_digest_is_not_taken(serve: Serve, user: Make) -> None:
    near, far = serve(), serve()
    push_base(far)
    for key, blob in far.blobs.items():
        far.blobs[key] = blob if len(blob) < 100_000 else bytes(len(blob))
    kernel = user(near, far)

    fault = kernel.fault(
        lambda: kernel.append(f"{far.host}/bases/python:1", f"{near.host}/team/cells")
    )

    assert "DIGEST_INVALID" in fault.message
    assert not near.manifests


PAGE = b"<html>Please sign in</html>"
EMPTY = {"mediaType": MANIFEST, "config": {}, "layers": []}
BROKEN = {"digest": digest(b"{}"), "size": 2, "mediaType": "x"}
NO_IMAGE = {"mediaType": MANIFEST, "config": BROKEN, "layers": []}


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("text/html", PAGE, "is not a JSON object"),
        (MANIFEST, b'{"mediaType": ', "is not a JSON object"),
        (MANIFEST, b"[" * 100_000, "is not a JSON object"),
        (MANIFEST, b"[]", "is not a JSON object"),
        (MANIFEST, b"{" + b" " * (4 << 20) + b"}", "sent more than 4 MiB"),
        ("application/json", b"{}", "of the type application/json"),
        (
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            b'{"schemaVersion": 1}',
            "manifest.v1+prettyjws, which nodes do not support",
        ),
        (MANIFEST, b"{}", "is broken"),
        (MANIFEST, json.dumps(EMPTY).encode(), "is broken"),
        (MANIFEST, json.dumps({**NO_IMAGE, "layers": [{"digest": "../x"}]}).encode(), "is broken"),
        (
            MANIFEST,
            json.dumps({**NO_IMAGE, "layers": [{**BROKEN, "size": -1}]}).encode(),
            "is broken",
        ),
        (
            MANIFEST,
            json.dumps({**NO_IMAGE, "config": {**BROKEN, "digest": "a?b=c"}}).encode(),
            "is broken",
        ),
        (MANIFEST, json.dumps(NO_IMAGE).encode(), "not a runnable image"),
        (INDEX, b"{}", "it has none at all"),
        (INDEX, b'{"manifests": [1, null, {"digest": 5}]}', "it has none at all"),
    ],
    ids=range(15),
)
def test_bases_that_are_none(serve: Serve, user: Make, kind: str, body: bytes, why: str) -> None:
    fake = serve()
    fake.push("bases/python", "1", body, kind)
    fake.put("bases/python", b"{}")
    kernel = user(fake)

    fault = kernel.fault(lambda: go(kernel, fake))

    assert why in fault.message
    assert not tags(fake)


def test_a_base_that_is_not_there(serve: Serve, user: Make) -> None:
    fake = serve()
    kernel = user(fake)

    fault = kernel.fault(lambda: go(kernel, fake))

    assert fault.message == f"there is no image {fake.host}/bases/python:1."


def test_a_base_that_is_another_than_its_digest_says(serve: Serve, user: Make) -> None:
    fake = serve()
    one = push_base(fake)
    fake.manifests["bases/python", one] = (MANIFEST, b"{}")
    kernel = user(fake)

    assert (
        "does not match its digest"
        in kernel.fault(lambda: go(kernel, fake, f"bases/python@{one}")).message
    )


def test_a_config_that_is_damaged(serve: Serve, user: Make) -> None:
    fake = serve()
    push_base(fake)
    config = json.loads(fake.manifests["bases/python", "1"][1])["config"]["digest"]
    fake.blobs["bases/python", config] = b"{}"
    kernel = user(fake)

    assert "is damaged" in kernel.fault(lambda: go(kernel, fake)).message


def test_a_login_page_for_everything(serve: Serve, user: Make) -> None:
    def page(handler: Any) -> bool:
        handler.say(200, PAGE, kind="text/html")
        return True

    fake = serve(before=page)
    kernel = user(fake)

    assert "is not a JSON object" in kernel.fault(lambda: go(kernel, fake)).message
    fault = kernel.fault(lambda: kernel.appender.find(parse(f"{fake.host}/team/cells"), "x"))
    assert "does not answer like a registry" in fault.message


def index(*offers: tuple[str, str, str, str]) -> bytes:
    manifests = [
        {"digest": one, "platform": {"os": os, "architecture": kind, "variant": variant}}
        for one, os, kind, variant in offers
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        (Platform("arm64"), "arm64/v8"),
        (Platform("arm64", variant="v8"), "arm64/v8"),
        (Platform("arm"), "arm/v7"),
        (Platform("arm", variant="v6"), "arm/v6"),
        (Platform("amd64"), "amd64"),
        (Platform("amd64", variant="v3"), "amd64/v3"),
        (Platform("s390x"), "s390x"),
        (Platform("riscv64", variant="x"), "riscv64/y"),
    ],
    ids=str,
)
def test_the_nodes_platform_is_chosen(
    serve: Serve, user: Make, platform: Platform, expected: str
) -> None:
    fake, offers = serve(), [(digest(b"none"), "unknown", "unknown", "")]
    for name in (
        *("amd64/v3", "amd64", "arm/v5", "arm/v7", "arm/v6", "arm64/v9", "arm64/v8", "s390x"),
        "riscv64/y",
    ):
        kind, _, variant = name.partition("/")
        config = {"architecture": kind, "config": {"Labels": {"platform": name}}}
        one = push_base(fake, tag=name.replace("/", "-"), config=config)
        offers.append((one, "linux", kind, variant))
    fake.push("bases/python", "1", index(*offers), INDEX)

    image = user(fake).appender.inspect(parse(f"{fake.host}/bases/python:1"), platform)

    assert image.labels == {"platform": expected}


def test_a_platform_that_is_missing_is_named_with_what_is_there(serve: Serve, user: Make) -> None:
    fake = serve()
    fake.push(
        "bases/python",
        "1",
        index(
            (digest(b"1"), "linux", "arm64", "v8"),
            (digest(b"2"), "windows", "amd64", ""),
            (digest(b"3"), "unknown", "unknown", ""),
        ),
        INDEX,
    )
    kernel = user(fake)

    assert kernel.fault(lambda: go(kernel, fake)).message == (
        f"{fake.host}/bases/python:1 has no image for linux/amd64; "
        "it has linux/arm64/v8, windows/amd64."
    )


@pytest.mark.parametrize("config", [{"architecture": "arm64"}, {"os": "windows"}])
def test_an_image_for_other_nodes(serve: Serve, user: Make, config: dict[str, str]) -> None:
    fake = serve()
    push_base(fake, config=config)
    kernel = user(fake)

    assert "but the nodes are linux/amd64" in kernel.fault(lambda: go(kernel, fake)).message


def test_an_index_that_does_not_say_platforms(serve: Serve, user: Make) -> None:
    fake = serve()
    one = push_base(fake, tag="x")
    body = {"mediaType": INDEX, "manifests": [{"digest": one}]}
    fake.push("bases/python", "1", json.dumps(body).encode(), INDEX)

    assert go(user(fake), fake).tag in tags(fake)


# Nobody there, or somebody else.


def test_nothing_listens(user: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        kernel = User([host], JANE)
        fault = kernel.fault(lambda: kernel.append(f"{host}/a/b:1", f"{host}/c"))

    assert fault.message == f"the registry {host} does not answer: nothing listens there."


def test_no_such_name() -> None:
    kernel = User([], JANE)

    fault = kernel.fault(lambda: kernel.append("no.such.invalid/a:1", "no.such.invalid/c"))

    assert fault.message == "the name of the registry no.such.invalid cannot be resolved here."


def test_it_falls_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TIMEOUT", (5.0, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        kernel = User([host], JANE)
        fault = kernel.fault(lambda: kernel.append(f"{host}/a/b:1", f"{host}/c"))

    assert fault.message == f"the registry {host} does not answer: it sent no data."


def test_it_speaks_http_and_not_https(serve: Serve) -> None:
    fake = serve()
    kernel = User([], JANE)

    fault = kernel.fault(lambda: go(kernel, fake))

    assert fault.message == f"the registry {fake.host} speaks http, not https."
    assert fault.hint.endswith(f"`%ciao config plainRegistries+={fake.host}`.")


def test_answers_end_too_early(serve: Serve, user: Make) -> None:
    times = [2]

    def cut(handler: Any) -> bool:
        if handler.command != "GET" or not times[0]:
            return False
        times[0] -= 1
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"mediaType"')
        handler.reset()
        return True

    fake = serve(before=cut)
    push_base(fake)
    kernel = user(fake)
    assert go(kernel, fake).tag in tags(fake)

    times[0] = 100
    assert "does not answer" in kernel.fault(lambda: go(kernel, fake)).message


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("ftp://elsewhere/x", "redirects to ftp://elsewhere"),
        ("http://[x/", "redirects to no://address"),
        ("http://host:99999999/", "redirects to no://address"),
        ("/v2/bases/python/manifests/1", "redirects too often"),
    ],
)
def test_ways_that_lead_nowhere(serve: Serve, user: Make, place: str, why: str) -> None:
    fake = serve(before=Sometimes("GET", 307, Location=place))
    kernel = user(fake)

    assert why in kernel.fault(lambda: go(kernel, fake)).message
    assert len(fake.seen) <= 5


# TLS.


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 that signs itself."""
    folder = tmp_path_factory.mktemp("pki")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", folder / "key", "-out", folder / "crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def secure(pki: Path) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "crt", pki / "key")
    with serving(Behaviour(auth="token"), context) as fake:
        push_base(fake)
        yield fake


def test_an_own_authority(
    secure: FakeRegistry, pki: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stranger = User([], JANE)
    fault = stranger.fault(lambda: go(stranger, secure))
    assert fault.message.startswith(
        f"the certificate of the registry {secure.host} is not trusted here: self"
    )
    assert not secure.seen

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "gone"))
    assert go(User([], JANE, pki / "crt"), secure).tag in tags(secure)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(pki / "crt"))
    assert go(User([], JANE), secure).unchanged


def test_a_folder_of_authorities(
    secure: FakeRegistry, pki: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """OpenSSL finds a certificate by the name that c_rehash gives it."""
    command = ["openssl", "x509", "-hash", "-noout", "-in", str(pki / "crt")]
    name = subprocess.check_output(command, text=True).strip()
    (tmp_path / f"{name}.0").write_bytes((pki / "crt").read_bytes())
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))

    assert go(User([], JANE), secure).tag in tags(secure)


def test_a_certificate_of_another_name(secure: FakeRegistry, pki: Path) -> None:
    host = secure.host.replace("127.0.0.1", "localhost")
    kernel = User([], JANE, pki / "crt")

    fault = kernel.fault(lambda: kernel.append(f"{host}/bases/python:1", f"{host}/x"))

    assert "is not trusted here: Hostname mismatch" in fault.message
    assert "registryAuthority" not in fault.hint


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        ("", "no certificate"),
        ("text", "no certificate"),
        (b"\xff", "no cert"),
    ],
)
def test_an_authority_that_cannot_be_used(tmp_path: Path, content: Any, why: str) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(RegistryFault, match=why) as raised:
        Registry("host", authority=file)
    assert str(file) in raised.value.message


def test_https_is_not_left_on_the_way(secure: FakeRegistry, pki: Path, serve: Serve) -> None:
    """To the registry itself it is put right, as behind a proxy that ends TLS; else refused."""
    secure.how.location = lambda place: place.replace("https://", "http://")
    assert go(User([], JANE, pki / "crt"), secure).tag in tags(secure)

    clear = serve()
    secure.how.storage = clear.url
    kernel = User([], JANE, pki / "crt")
    fault = kernel.fault(lambda: kernel.append(f"{secure.host}/bases/python:1", f"{secure.host}/x"))
    assert "redirects to http://127.0.0.1, which is not https" in fault.message
    secure.how.storage = ""
    secure.how.realm = f"{clear.url}/token"
    kernel = User([], JANE, pki / "crt")
    assert "as its token server" in kernel.fault(lambda: go(kernel, secure)).message
    assert not clear.seen


def test_a_plain_registry_that_speaks_https(secure: FakeRegistry) -> None:
    kernel = User([secure.host], JANE)

    fault = kernel.fault(lambda: go(kernel, secure))

    assert secure.host in fault.message  # Python's server closes; those of Go say why


def test_those_of_go_say_that_they_speak_https(serve: Serve, user: Make) -> None:
    words = b"Client sent an HTTP request to an HTTPS server.\n"
    for body in (words, b""):
        fake = serve(before=Sometimes("GET", 400, body=body))
        kernel = user(fake)
        fault = kernel.fault(lambda: go(kernel, fake))  # noqa: B023
        assert fault.message == f"the registry {fake.host} speaks https, not http."


# Proxies.


def test_proxies_of_the_environment(
    serve: Serve, user: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """192.0.2.0/24 is nobody's (RFC 5737)."""
    proxy, fake = serve(), serve()
    push_base(fake)
    monkeypatch.setenv("HTTP_PROXY", f"http://jane:hunter2@{proxy.host}")
    monkeypatch.setenv("http_proxy", f"http://jane:hunter2@{proxy.host}")
    there = "192.0.2.1:5000"
    kernel = User([there, fake.host], JANE)

    assert kernel.fault(lambda: kernel.append(f"{there}/a:1", f"{there}/b")).code == 404
    assert proxy.lines()[0].startswith(f"GET http://{there}/v2/a")

    proxy.seen.clear()
    assert go(kernel, fake).tag in tags(fake)
    assert not proxy.seen, "no proxy reaches this machine itself"
    monkeypatch.setenv("no_proxy", "192.0.2.0/24")
    assert connections.proxies(f"http://{there}/v2/") == {}
    assert connections.proxies("http://203.0.113.1/v2/")


def test_a_proxy_that_is_down(serve: Serve, user: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://jane:hunter2@127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("https_proxy", address)
        kernel = User([], JANE)
        fault = kernel.fault(lambda: kernel.append("ghcr.io/a:1", "ghcr.io/b"))

    assert fault.message == "the registry ghcr.io cannot be reached through the proxy."
