"""Passwords that a build needs are nowhere but in their Secrets: every blob is searched."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ciao_kernel import log
from tests.cluster.faults import registries
from tests.cluster.faults.registries import OWNER, Kind, Registry
from tests.e2e.images.conftest import Maker
from tests.e2e.workers import own
from tests.helpers.jobs import Ended, Recorder, wait
from tests.helpers.packages import serving

pytestmark = pytest.mark.slow
USER, PASSWORD = "jane", "hunter2-of-jane"
CELL = "import app\nprint(app.version)"
KINDS = "pods,configmaps,events,tfjobs,serviceaccounts,services,roles,rolebindings"
SEARCH = """
import gzip, json, pathlib, sys
root, words = sys.argv[1], [word.encode() for word in sys.argv[2:]]
found, blobs = {word: 0 for word in sys.argv[2:]}, 0
for path in pathlib.Path(root).rglob("*"):
    if not path.is_file():
        continue
    blobs += path.name == "data"
    data = path.read_bytes()
    data += gzip.decompress(data) if data[:2] == bytes([31, 139]) else b""
    for word in words:
        found[word.decode()] += word in data
print(json.dumps([blobs, found]))
"""


def forms(name: str, password: str) -> list[str]:
    """A password as it may stand somewhere."""
    both = base64.b64encode(f"{name}:{password}".encode()).decode()
    alone = base64.b64encode(password.encode()).decode()
    return [password, quote(password), both, alone.rstrip("=")]


def objects(maker: Maker) -> bytes:
    """All objects of the namespace but its Secrets, what ConfigMaps pack unpacked."""
    found: list[dict[str, Any]] = maker.team.namespace.get(KINDS)["items"]
    packed = [
        gzip.decompress(base64.b64decode(text))
        for item in found
        for key, text in (item.get("binaryData") or {}).items()
        if key.endswith(".gz")
    ]
    return b"".join([json.dumps(found).encode(), *packed])


@pytest.mark.parametrize(
    "builder", ["kaniko", pytest.param("s2i", marks=pytest.mark.second("builders"))]
)
def test_passwords_stay_in_their_secrets(
    maker: Maker,
    builder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    request.addfinalizer(log.end)
    log.write_to(maker.team.storage)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    kind = own(Kind(f"registry-hunt-{builder}", 5033, "token", tls=True))
    host = maker.cluster.at.host_address
    seen: list[bytes] = []

    async def look(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: "[build] " in display.notices or work.done())
        seen.append(objects(maker))

    with serving(host) as index, Registry(maker.cluster, kind) as registry:
        index.password = PASSWORD
        index.add("app", "1.5")
        address = index.url.replace("://", f"://{USER}:{PASSWORD}@")
        conf = f"index-url = {address}\ntrusted-host = {host}\nbreak-system-packages = true\n"
        maker.secret("index", **{"pip.conf": f"[global]\n{conf}"})
        maker.team.namespace.create_objects(registries.pull_secret(registry.host, OWNER))
        there = {
            "registry": f"{registry.host}/{maker.repository}",
            "registry_authority": str(registry.authority),
            "s2i_builder": maker.cluster.image("s2i-python"),
        }
        ended = maker.run(
            CELL,
            f"%builder={builder}",
            "%packages=app",
            "%pipSecret=index",
            "%pushSecret=pull",
            "%imagePullSecret=pull",
            during=look,
            **there,
        )
        words = [*forms(USER, PASSWORD), *forms(OWNER.name, OWNER.password)]
        root = f"/var/lib/registries/{kind.name}"
        node = maker.cluster.node
        said = node.run(["/usr/bin/python3", "-c", SEARCH, root, *words, "app-1.5.dist-info"])
        seen.append(objects(maker))

    assert maker.lines(ended) == ["1.5"]
    blobs, found = json.loads(said)
    assert blobs > 6  # manifests, configurations and layers of the environment and the cell
    assert found.pop("app-1.5.dist-info") > 0  # it would be found
    assert found == dict.fromkeys(words, 0)
    assert b"ciao-build-" in seen[0]  # the pod was there, with its context
    assert b"FROM " in seen[0]
    requests = log.files(maker.team.storage)[-1].read_text()
    assert f"https://{registry.host}/v2/" in requests
    assert f"/api/v1/namespaces/{maker.team.namespace.name}/pods" in requests
    kept = [path.read_bytes() for path in maker.team.storage.rglob("*") if path.is_file()]
    told = ended.display.notices.encode()
    for word in words:
        assert not any(word.encode() in text for text in (*seen, *kept, told))
    assert maker.left() == []
