"""Uploads that are cut: each goes on where it was, where the registry can do that."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders.layers import Sent
from ciao_kernel.oci import upload
from ciao_kernel.oci.layer import File, Layer, pack
from tests.integration.oci.conftest import User
from tests.integration.oci.fake_registry import FakeRegistry, push_base

Serve = Callable[..., FakeRegistry]
Make = Callable[..., User]
BASE = 128_000
"""Bytes of each layer of the base."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_SMALL", 2_000)


def packed(place: Path | None = None, size: int = 400_000) -> Layer:
    return pack([File("a", random.Random(1).randbytes(size))], place)


def own(fake: FakeRegistry) -> str:
    """Push a base into the repository of the cells; return the repository's name."""
    push_base(fake, "team/cells")
    return f"{fake.host}/team/cells"


def offsets(seed: int, size: int, number: int = 4) -> list[int]:
    """The number of bytes of each request that come before the cut."""
    chosen = sorted(random.Random(seed).sample(range(2, size), number))
    return [end - begin for begin, end in zip([0, *chosen], chosen, strict=False)]


def sent(fake: FakeRegistry, method: str, least: int = 0) -> int:
    return sum(one.line.startswith(f"{method} ") and one.size >= least for one in fake.seen)


@pytest.mark.stands_for("builders")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["file", "memory", "sent file", "sent memory"])
def test_a_layer_goes_on_where_it_was(
    serve: Serve, user: Make, tmp_path: Path, seed: int, kind: str
) -> None:
    layer = packed(tmp_path / "layer" if "file" in kind else None)
    if "sent" in kind:  # as the builders send it, so that an interrupt ends the upload
        layer = Sent(layer.digest, layer.diff_id, layer.size, layer.content, lambda done: None)
    cuts = offsets(seed, layer.size)
    fake = serve(cuts=list(cuts), relative=bool(seed % 2), query=bool(seed % 3))
    image = own(fake)

    made = user(fake).append(f"{image}:1", image, layers=[layer])

    assert ("team/cells", made.tag) in fake.manifests
    assert len(fake.blobs["team/cells", layer.digest]) == layer.size
    assert not fake.how.cuts
    assert sent(fake, "POST") == 2, "a new upload was opened"
    # One with everything, and each later one with the rest only.
    rests = [layer.size - sum(cuts[:count]) for count in range(1, len(cuts) + 1)]
    assert [one.size for one in fake.seen if one.line.startswith("PATCH")] == rests


@pytest.mark.parametrize("parts", [True, False])
def test_a_layer_of_the_base_goes_on_and_is_not_fetched_twice(
    serve: Serve, user: Make, parts: bool
) -> None:
    cuts, asked = offsets(7, BASE, 3), list[str]()

    def note(handler: Any) -> bool:
        if handler.command == "GET" and "/blobs/" in handler.path:
            asked.append(handler.headers.get("Range", ""))
        return False

    near, far = serve(cuts=list(cuts)), serve(parts=parts, before=note)
    push_base(far, layers=1)
    told: list[int] = []

    made = user(near, far).append(
        f"{far.host}/bases/python:1",
        f"{near.host}/team/cells",
        tell=lambda _digest, done, _size: told.append(done),
    )

    assert ("team/cells", made.tag) in near.manifests
    assert sent(near, "PATCH") == 3
    assert sent(near, "PUT", BASE) == 1
    assert told[-1] == BASE
    # The config, the whole layer, and what was missing of it after each cut.
    assert asked == ["", "", *(f"bytes={sum(cuts[:count])}-" for count in (1, 2, 3))]


def refuses(method: str, status: int) -> Callable[[Any], bool]:
    """Refuses all requests of a method about an open upload."""

    def answer(handler: Any) -> bool:
        if handler.command == method and "/blobs/uploads/" in handler.path:
            handler.error(status, "UNSUPPORTED")
            return True
        return False

    return answer


@pytest.mark.parametrize(
    "how",
    [
        {"keeps": False},
        {"before": refuses("GET", 404)},
        {"before": refuses("GET", 405)},
        {"before": refuses("GET", 403)},
        {"before": refuses("PATCH", 416)},
        {"before": refuses("PATCH", 404)},
    ],
    ids=["gone", "GET 404", "GET 405", "GET 403", "PATCH 416", "PATCH 404"],
)
def test_a_registry_that_cannot_go_on_gets_a_new_upload(
    serve: Serve, user: Make, how: dict[str, Any]
) -> None:
    fake, layer = serve(cuts=[100_000], **how), packed()
    image = own(fake)

    made = user(fake).append(f"{image}:1", image, layers=[layer])

    assert ("team/cells", made.tag) in fake.manifests
    assert sent(fake, "PUT", layer.size) == 2


@pytest.mark.parametrize("said", ["0-0", "0-99999999", "soon", "", "5-9", "0-1000"])
def test_a_wrong_position_costs_a_new_upload_and_no_wrong_layer(
    serve: Serve, user: Make, said: str
) -> None:
    def lies(handler: Any) -> bool:
        if handler.command == "GET" and "/blobs/uploads/" in handler.path:
            handler.say(204, **({"Range": said} if said else {}))
            return True
        return False

    fake, layer = serve(cuts=[100_000], before=lies), packed()
    image = own(fake)

    made = user(fake).append(f"{image}:1", image, layers=[layer])

    assert ("team/cells", made.tag) in fake.manifests
    assert len(fake.blobs["team/cells", layer.digest]) == layer.size
    assert sent(fake, "PUT", layer.size) == 2


def test_a_registry_that_stored_something_else_is_found_out(serve: Serve, user: Make) -> None:
    def damages(handler: Any) -> bool:
        for came in handler.server.uploads.values():
            if handler.command == "PATCH" and came:
                came[0] ^= 1
        return False

    fake, layer = serve(cuts=[100_000], before=damages), packed()
    image = own(fake)

    user(fake).append(f"{image}:1", image, layers=[layer])

    assert sent(fake, "PATCH") == 1
    assert sent(fake, "PUT", layer.size) == 2


def test_a_whole_upload_whose_answer_was_lost_is_only_completed(serve: Serve, user: Make) -> None:
    layer = packed()
    fake = serve(cuts=[layer.size])
    image = own(fake)

    user(fake).append(f"{image}:1", image, layers=[layer])

    assert ("team/cells", layer.digest) in fake.blobs
    assert not sent(fake, "PATCH")
    assert sent(fake, "PUT", layer.size) == 1


def test_an_upload_without_progress_ends(serve: Serve, user: Make) -> None:
    fake, layer = serve(cuts=[100_000] + [0] * 1000), packed()
    image = own(fake)
    kernel = user(fake)

    fault = kernel.fault(lambda: kernel.append(f"{image}:1", image, layers=[layer]))

    assert "it closed the connection" in fault.message
    assert sent(fake, "PATCH") <= 5 * 3
