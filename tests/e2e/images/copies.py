"""Images of the cluster's registry by another name, with something else in them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from ciao_kernel.oci.append import Appender, Change
from ciao_kernel.oci.image import Platform
from ciao_kernel.oci.layer import File, pack
from ciao_kernel.oci.reference import digest_of, parse
from ciao_kernel.oci.registries import Registries
from tests.cluster.cluster import Cluster

_KIND = "application/vnd.oci.image.manifest.v1+json"


def copied(cluster: Cluster, image: str, name: str, **config: Any) -> str:
    """Copy an image and return its digest.

    Args:
        cluster: Its registry has the image.
        image: Repository and tag.
        name: The same of the copy; ``latest`` is its tag where it names none.
        config: Of the image's ``config`` what becomes other.
    """
    registry = f"http://{cluster.at.registry}/v2"
    (source, _, version), (target, _, tag) = image.partition(":"), name.partition(":")
    manifest = json.loads(_ask("GET", f"{registry}/{source}/manifests/{version}")[0])
    blob = _ask("GET", f"{registry}/{source}/blobs/{manifest['config']['digest']}")[0]
    known = json.loads(blob)
    raw = json.dumps({**known, "config": {**known["config"], **config}}).encode()
    uploads = f"{registry}/{target}/blobs/uploads/"
    for layer in manifest["layers"]:
        _ask("POST", f"{uploads}?mount={layer['digest']}&from={source}")
    place = _ask("POST", uploads)[1]
    _ask("PUT", f"{place}&digest={digest_of(raw)}", raw)
    manifest["config"] |= {"digest": digest_of(raw), "size": len(raw)}
    whole = json.dumps(manifest).encode()
    _ask("PUT", f"{registry}/{target}/manifests/{tag or 'latest'}", whole)
    return digest_of(whole)


def layered(cluster: Cluster, image: str, repository: str, files: Mapping[str, str]) -> str:
    """Put programs onto an image, and return the new one's name, with its digest.

    Args:
        cluster: Its registry has the image.
        image: Its name in tests/cluster/recipes.py.
        repository: Where the new one goes.
        files: By their paths from the root; all of them may be run.
    """
    host = cluster.at.registry
    registries = Registries([host], find=lambda _: None)
    layer = pack([File(path, text.encode(), True) for path, text in files.items()])
    try:
        made = Appender(registries.of).append(
            parse(cluster.image(image)),
            parse(f"{host}/{repository}"),
            [layer],
            Change(),
            Platform(),
        )
    finally:
        registries.close()
    return str(made.image)


def _ask(method: str, url: str, data: bytes | None = None) -> tuple[bytes, str]:
    kind = _KIND if "/manifests/" in url else "application/octet-stream"
    head = {"Accept": _KIND, "Content-Type": kind}
    asked = urllib.request.Request(url, data, head, method=method)
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return answer.read(), answer.headers.get("Location", "")
