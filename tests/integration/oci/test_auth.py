"""Who asks: Basic, tokens, rights; and who never hears of it."""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ciao_kernel.oci import auth
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.reference import Reference, parse
from ciao_kernel.oci.registries import Registries
from ciao_kernel.oci.repository import Repository, scope
from tests.integration.oci.conftest import JANE, User
from tests.integration.oci.fake_registry import (
    PASSWORD,
    REFRESH,
    USER,
    FakeRegistry,
    push_base,
)

Serve = Callable[..., FakeRegistry]
Make = Callable[..., User]


def go(kernel: User, fake: FakeRegistry, code: str = "print(1)", **more: Any) -> Any:
    return kernel.append(f"{fake.host}/bases/python:1", f"{fake.host}/team/cells", code, **more)


@pytest.mark.parametrize("kind", ["basic", "token"])
def test_a_question_costs_little_once_and_nothing_later(
    serve: Serve, user: Make, kind: str
) -> None:
    fake = serve(auth=kind)
    push_base(fake)
    kernel = user(fake)

    go(kernel, fake)
    first = fake.lines()
    go(kernel, fake, "print(2)")

    assert len(first) == 10 + (1 if kind == "basic" else 2)
    assert len(fake.lines()) == 7


def test_uploads_that_are_asked_who_they_are_at_the_same_moment(serve: Serve, user: Make) -> None:
    """A registry that anybody may read asks only then, and the layer and the config go at once."""
    both = threading.Barrier(2)

    def ask(handler: Any) -> bool:
        if handler.command != "POST" or handler.basic() == USER:
            return False
        both.wait(60)
        handler.error(401, "UNAUTHORIZED", **{"WWW-Authenticate": 'Basic realm="fake"'})
        return True

    fake = serve(before=ask)
    push_base(fake, "team/cells")

    made = user(fake).append(f"{fake.host}/team/cells:1", f"{fake.host}/team/cells")

    assert ("team/cells", made.tag) in fake.manifests


def test_a_token_that_ends_is_renewed_before_it_is_used(
    serve: Serve, user: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = serve(auth="token")
    push_base(fake)
    kernel = user(fake)
    go(kernel, fake)
    fake.lines()
    later = time.monotonic() + 1000
    monkeypatch.setattr(auth.time, "monotonic", lambda: later)
    fake.tokens.clear()

    go(kernel, fake, "print(2)")

    lines = fake.lines()
    assert lines.count("GET /token") == 1
    assert len(lines) == 8


def test_an_identity_token_buys_tokens(serve: Serve, user: Make) -> None:
    fake = serve(auth="token")
    push_base(fake)

    go(user(fake, token=True), fake)

    assert "POST /token" in fake.lines()


@pytest.mark.parametrize("kind", ["basic", "token", "identity"])
def test_no_secret_is_in_what_is_pushed(serve: Serve, user: Make, kind: str) -> None:
    fake = serve(auth="basic" if kind == "basic" else "token")
    push_base(fake)

    go(user(fake, token=kind == "identity"), fake)

    secrets = {PASSWORD, REFRESH, *fake.tokens}
    secrets |= {seen.authorization.partition(" ")[2] for seen in fake.seen if seen.authorization}
    assert len(secrets) > 2
    everything = [*fake.blobs.values(), *(raw for _, raw in fake.manifests.values())]
    for raw in everything:
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        assert not [secret for secret in secrets if secret.encode() in text]


def test_a_token_server_that_looks_at_the_first_scope_alone(serve: Serve, user: Make) -> None:
    fake = serve(auth="token", first_scope_only=True)
    push_base(fake)

    go(user(fake), fake)

    assert ("team/cells", "ciao-") in {(name, tag[:5]) for name, tag in fake.manifests}


def test_a_token_may_end_before_a_stream_is_sent(serve: Serve, user: Make) -> None:
    near, far = serve(auth="token"), serve()
    push_base(far)
    ends = [1]

    def forget(handler: Any) -> bool:
        if handler.command == "PUT" and len(handler.body) > 100_000 and ends:
            ends.pop()
            near.tokens.clear()
        return False

    near.how.before = forget

    made = user(near, far).append(f"{far.host}/bases/python:1", f"{near.host}/team/cells")

    assert not ends
    assert ("team/cells", made.tag) in near.manifests


def test_accounts_of_two_repositories(serve: Serve) -> None:
    fake = serve(auth="basic", rights={"bases/python": {"pull"}})
    push_base(fake)
    asked = []

    def who(image: Reference) -> Credentials:
        asked.append(image.repository)
        return JANE if image.repository == "team/cells" else Credentials(USER, PASSWORD, "other")

    kernel = User([fake.host])
    kernel.use(Registries([fake.host], find=who))
    go(kernel, fake)

    assert set(asked) == {"team/cells", "bases/python"}
    assert any("mount=" in seen.line for seen in fake.seen)


@pytest.mark.parametrize("kind", ["basic", "token"])
def test_nobody_is_asked_who_he_is(serve: Serve, user: Make, kind: str) -> None:
    fake = serve(auth=kind, anonymous={"pull"} if kind == "token" else set())
    push_base(fake)
    kernel = user(fake, known=False)

    fault = kernel.fault(lambda: go(kernel, fake))

    assert fault.code == 401
    assert fault.message.startswith(f"the registry {fake.host} requires authentication (pu")
    assert fault.hint.startswith(f"`docker login {fake.host}`")
    assert len(fake.manifests) == 2


@pytest.mark.parametrize("kind", ["basic", "token"])
def test_a_wrong_password(serve: Serve, kind: str) -> None:
    fake = serve(auth=kind)
    push_base(fake)
    kernel = User([fake.host], Credentials(USER, "wrong hunter2"))

    fault = kernel.fault(lambda: go(kernel, fake))

    assert "does not accept the credentials of jane" in fault.message
    assert len(fake.lines()) <= 4  # nobody is locked out


def test_a_wrong_identity_token(serve: Serve) -> None:
    fake = serve(auth="token")
    kernel = User([fake.host], Credentials(identity_token="old-hunter2"))

    fault = kernel.fault(lambda: go(kernel, fake))

    assert "does not accept the credentials of the owner of the token" in fault.message


def test_after_a_refusal_credentials_are_looked_up_anew(serve: Serve) -> None:
    fake = serve(auth="token")
    push_base(fake)
    kernel, who = User([fake.host]), [Credentials(USER, "wrong hunter2"), JANE]
    kernel.use(Registries([fake.host], find=lambda image: who[0]))
    kernel.fault(lambda: go(kernel, fake))
    who.pop(0)  # docker login

    assert not go(kernel, fake).unchanged


def expired(handler: Any) -> bool:
    """Refuse an old password as Amazon ECR does: by 403, and with the reason in the body."""
    if handler.basic() != "?":
        return False
    handler.error(403, "DENIED", "Your authorization token has expired. Reauthenticate.")
    return True


def look(kernel: User, target: Reference) -> str:
    """Look for an image by a HEAD."""
    scopes = (scope(target.repository, "pull"),)
    return Repository(kernel.registries.of(target), target, scopes).has_manifest("x", "")


def test_a_login_that_has_expired_asks_for_a_new_one_which_counts_at_once(serve: Serve) -> None:
    fake = serve(auth="basic", before=expired)
    kernel, who = User([fake.host]), [Credentials(USER, "old hunter2"), JANE]
    kernel.use(Registries([fake.host], find=lambda image: who[0]))
    target = parse(f"{fake.host}/team/cells")

    fault = kernel.fault(lambda: look(kernel, target))

    assert fault.message == (
        f"the registry {fake.host} does not accept the credentials of jane (pull {target.name}:x): "
        "DENIED: Your authorization token has expired. Reauthenticate."
    )
    assert fault.hint.startswith(f"`docker login {fake.host}`")
    assert [line.partition(" ")[0] for line in fake.lines()] == ["HEAD", "HEAD", "GET"]
    who.pop(0)  # docker login
    assert look(kernel, target) == ""


def test_credentials_are_looked_up_anew_after_a_403_to_a_password(serve: Serve) -> None:
    """It may mean that a login has expired, also where the registry does not tell."""
    fake = serve(auth="basic", rights={"team/cells": set()})
    kernel, asked = User([fake.host]), list[Reference]()

    def who(image: Reference) -> Credentials:
        asked.append(image)
        return JANE

    kernel.use(Registries([fake.host], find=who))
    target = parse(f"{fake.host}/team/cells")
    for count in (1, 2):
        fault = kernel.fault(lambda: look(kernel, target))
        said = f"jane has no right to pull {target.name}:x: DENIED: no pull on team/cells."
        assert fault.message == said
        assert len(asked) == count


def refuse_a_token(handler: Any) -> bool:
    """Refuse a token for one repository, where others give one without rights."""
    if handler.parts.path != "/token" or "team" not in handler.parts.query:
        return False
    handler.error(403, "DENIED")
    return True


@pytest.mark.parametrize("kind", ["basic", "token"])
def test_credentials_that_another_repository_accepts_are_not_looked_up_each_time(
    serve: Serve, kind: str
) -> None:
    """One missing right made every later cell ask a helper, for as long as the kernel ran."""
    fake = serve(auth=kind, rights={"team/cells": set()}, before=refuse_a_token)
    push_base(fake)
    kernel, asked = User([fake.host]), list[str]()

    def who(image: Reference) -> Credentials:
        asked.append(image.repository)
        return JANE

    kernel.use(Registries([fake.host], find=who))
    base, denied = (parse(f"{fake.host}/{name}") for name in ("bases/python", "team/cells"))
    kernel.fault(lambda: look(kernel, denied))
    for _ in range(3):
        look(kernel, base)
    assert asked == ["team/cells", "bases/python"]


@pytest.mark.parametrize("kind", ["basic", "token"])
def test_a_right_that_is_missing_is_named(serve: Serve, user: Make, kind: str) -> None:
    fake = serve(auth=kind, rights={"team/cells": {"pull"}, "bases/secret": set()})
    push_base(fake)
    push_base(fake, "bases/secret")
    kernel = user(fake)

    fault = kernel.fault(lambda: go(kernel, fake))
    assert fault.message.startswith(f"jane has no right to push to {fake.host}/team/cells")
    secret = f"{fake.host}/bases/secret:1"
    fault = kernel.fault(lambda: kernel.append(secret, f"{fake.host}/team/other"))
    assert fault.message.startswith(f"jane has no right to pull {secret}")
    assert {name for name, _ in fake.manifests} == {"bases/python", "bases/secret"}


def test_a_base_that_may_not_be_mounted_but_read(serve: Serve, user: Make) -> None:
    """The registry answers 401 to the mount, and takes the upload."""
    fake = serve(auth="token", mount=401)
    push_base(fake)

    made = go(user(fake), fake)

    assert ("team/cells", made.tag) in fake.manifests


def test_storage_elsewhere_does_not_hear_who_asks(serve: Serve, user: Make) -> None:
    storage = serve()
    push_base(storage)
    for kind in ("basic", "token"):
        far, near = serve(auth=kind, storage=storage.url), serve(auth=kind)
        push_base(far)

        user(near, far).append(f"{far.host}/bases/python:1", f"{near.host}/team/cells")

        assert [seen.authorization for seen in storage.seen] == ["", "", ""]
        assert all("signed=1" in seen.line for seen in storage.seen)
        assert any(seen.authorization for seen in far.seen)
        storage.lines()


def test_uploads_elsewhere_do_not_hear_who_asks(serve: Serve, user: Make) -> None:
    elsewhere = serve()
    fake = serve(auth="basic", location=lambda place: place.replace(fake.host, elsewhere.host))
    push_base(fake, "team/cells")
    kernel = user(fake)

    kernel.fault(lambda: kernel.append(f"{fake.host}/team/cells:1", f"{fake.host}/team/cells"))

    assert elsewhere.seen
    assert not any(seen.authorization for seen in elsewhere.seen)


def test_a_question_from_elsewhere_is_not_answered(serve: Serve, user: Make) -> None:
    """A storage that asks for a password, or names a token server of its own, gets nothing."""
    thief = serve(auth="basic")
    taker = serve(auth="token", realm=f"{thief.url}/token")
    for storage in (thief, taker):
        fake = serve(auth="basic", storage=storage.url)
        push_base(fake)
        kernel = user(fake)

        assert kernel.fault(lambda: go(kernel, fake)).code == 401  # noqa: B023

    assert not any(seen.authorization for seen in [*thief.seen, *taker.seen])


@pytest.mark.parametrize("realm", ["", "ftp://x/token", "file:///etc/passwd", "//x", "http://[x"])
def test_a_token_server_has_to_be_an_address(serve: Serve, user: Make, realm: str) -> None:
    def asks(handler: Any) -> bool:
        handler.say(401, **{"WWW-Authenticate": f'Bearer realm="{realm}"'})
        return True

    fake = serve(before=asks)
    kernel = user(fake)

    assert "as its token server" in kernel.fault(lambda: go(kernel, fake)).message


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b"{}", "sent no token"),
        (200, b"<html>", "sent no token"),
        (200, b"[1]", "sent no token"),
        (200, '{"token": "ü"}'.encode(), "sent no token"),
        (200, b'{"token": "a\\r\\nX: b"}', "sent no token"),
        (404, b"", "answered 404"),
        (302, b"", "answered 302"),
        (500, b"hunter2", "answered 500"),
    ],
)
def test_a_token_server_that_gives_none(
    serve: Serve, user: Make, status: int, body: bytes, why: str
) -> None:
    def broken(handler: Any) -> bool:
        if handler.parts.path == "/token":
            handler.say(status, body, Location=f"{elsewhere.url}/token")
        return bool(handler.parts.path == "/token")

    elsewhere, fake = serve(), serve(auth="token", before=broken)
    for token in (True, False):
        kernel = user(fake, token=token)
        assert why in kernel.fault(lambda: go(kernel, fake)).message  # noqa: B023
    assert not elsewhere.seen


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, {"Retry-After": "1"}),
        (429, {}),
        (503, {"Retry-After": "0"}),
        (429, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}),
    ],
)
def test_a_token_server_that_is_busy_is_waited_for(
    serve: Serve, user: Make, status: int, headers: dict[str, str]
) -> None:
    left = [status] * 3

    def busy(handler: Any) -> bool:
        if handler.parts.path != "/token" or not left:
            return False
        handler.say(left.pop(), **headers)
        return True

    fake = serve(auth="token", before=busy)
    push_base(fake)

    assert ("team/cells", go(user(fake), fake).tag) in fake.manifests
    assert not left


def test_a_token_server_that_is_busy_for_long(serve: Serve, user: Make) -> None:
    def busy(handler: Any) -> bool:
        if handler.parts.path == "/token":
            handler.say(429, **{"Retry-After": "3600"})
        return bool(handler.parts.path == "/token")

    fake = serve(auth="token", before=busy)
    kernel = user(fake)

    fault = kernel.fault(lambda: go(kernel, fake))

    assert "token server" in fault.message
    assert "gets too many requests" in fault.message
    assert fault.hint.startswith("Try again in 60 min")
    assert fake.lines().count("GET /token") == 1


def test_a_token_server_without_an_end(serve: Serve, user: Make) -> None:
    """Nobody reads more of it than a token has."""
    sent: list[int] = []

    def endless(handler: Any) -> bool:
        if handler.parts.path != "/token":
            return False
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        with contextlib.suppress(OSError):
            for _ in range(64):
                handler.wfile.write(b" " * (1 << 20))
                sent.append(1 << 20)
        return True

    fake = serve(auth="token", before=endless)
    kernel = user(fake)

    assert "sent no token" in kernel.fault(lambda: go(kernel, fake)).message
    assert sum(sent) < 64 << 20


def test_a_registry_that_repeats_what_it_heard(serve: Serve, user: Make) -> None:
    def echo(handler: Any) -> bool:
        told = handler.headers.get("Authorization") or ""
        if not told:
            handler.error(401, "X", **{"WWW-Authenticate": "Basic"})
        else:
            handler.error(403, "DENIED", f"{told} is {PASSWORD}\x1b[31m\n")
        return True

    fake = serve(before=echo)
    kernel = user(fake)

    fault = kernel.fault(lambda: go(kernel, fake))
    assert "DENIED: Basic … is …" in fault.message
    assert "\x1b" not in fault.message
