"""Which cluster and as whom, from kubeconfigs as they are found in the wild."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import ssl
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import access, configured
from ciao_kernel.kube.client import Client

pytestmark = pytest.mark.stands_for("oldest")

TOKEN = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl"
CA = "-----BEGIN CERTIFICATE-----\nca\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kubeconfig and no pod but those that a test makes."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(configured, "ACCOUNT", tmp_path / "account")


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def content(
    user: dict[str, Any] | None = None, *, name: str = "one", **cluster: Any
) -> dict[str, Any]:
    cluster = {"server": f"https://{name}.example.com:6443", **cluster}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": f"c-{name}", "cluster": cluster}],
        "users": [{"name": f"u-{name}", "user": {"token": TOKEN} if user is None else user}],
        "contexts": [
            {
                "name": name,
                "context": {"cluster": f"c-{name}", "user": f"u-{name}", "namespace": f"ns-{name}"},
            }
        ],
        "current-context": name,
    }


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes kubeconfigs, and names them all in KUBECONFIG."""
    made: list[Path] = []

    def write(what: Any, name: str = "") -> Path:
        path = tmp_path / (name or f"kubeconfig-{len(made)}")
        path.parent.mkdir(exist_ok=True)
        path.write_text(what if isinstance(what, str) else yaml.safe_dump(what))
        made.append(path)
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, made)))
        return path

    return write


def load(context: str = "") -> access.Access:
    return asyncio.run(access.load(context))


def token(found: access.Access) -> str:
    return found.headers().get("Authorization", "")


def fault(context: str = "") -> str:
    with pytest.raises(ClusterFault) as caught:
        load(context)
    said = f"{caught.value.message} {caught.value.hint}"
    assert TOKEN not in said
    return said


# ------------------------------------------------------------------------------ which file


def test_without_any_file_there_is_no_cluster() -> None:
    assert not configured.configured()
    assert "no cluster is configured" in fault()


def test_a_name_that_is_no_file_is_a_slip_and_no_wish_to_run_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "typo"))
    assert configured.configured()
    assert f"KUBECONFIG names {tmp_path}/typo, but there is no such file" in fault()


def test_dev_null_means_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    assert not configured.configured()


def test_a_file_that_does_not_exist_is_left_out_beside_one_that_does(
    put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(content())
    monkeypatch.setenv("KUBECONFIG", f"/nowhere{os.pathsep}{path}")
    assert load().context == "one"


def test_of_several_files_the_first_that_says_something_wins(put: Any) -> None:
    first = content(name="one")
    del first["current-context"]
    put(first)
    put(content(name="two"))
    third = content(name="three")
    third["contexts"].append({"name": "two", "context": {"cluster": "nowhere"}})
    put(third)
    assert load().context == "two"
    assert load().server.address == "https://two.example.com:6443"
    assert load("three").namespace == "ns-three"
    assert "has one, three, two" in fault("four")


@pytest.mark.parametrize("text", ["", "# nobody has signed in yet\n"])
def test_an_empty_file_says_nothing_beside_others(put: Any, text: str) -> None:
    path = put(text)
    assert f"the kubeconfig {path} has no current context; it has none" in fault()
    put(content())
    assert load().context == "one"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("text", "it is not a kubeconfig"),
        ("- a\n- b\n", "it is not a kubeconfig"),
        ("a: [\nb: }", "line 2 is not YAML"),
        ("\0", "is not YAML"),
        ("current-context: x\ncontexts: [{context: {}}]\n", "cannot be used"),
        ("current-context: x\ncontexts: [7]\n", "cannot be used"),
        ("current-context: x\ncontexts: {x: 1}\n", "cannot be used"),
    ],
)
def test_a_broken_file_is_named(put: Any, text: str, said: str) -> None:
    path = put(text)
    found = fault()
    assert said in found
    assert str(path) in found


# ------------------------------------------------------------------------------ contexts


def test_an_unknown_context_is_answered_with_those_that_exist(put: Any) -> None:
    put(content(name="staging"))
    found = fault("stagging")
    assert "there is no context stagging" in found
    assert "has staging" in found
    assert "Did you mean staging?" in found


def test_a_file_without_a_current_context_asks_for_one(put: Any) -> None:
    put({**content(), "current-context": ""})
    assert "has no current context; it has one" in fault()
    assert load("one").namespace == "ns-one"


def test_a_user_that_does_not_exist_is_said_and_nobody_goes_on_as_nobody(put: Any) -> None:
    put({**content(), "users": []})
    assert "it has no user u-one" in fault()


def test_a_proxy_of_kubectl_needs_no_user(put: Any) -> None:
    made = content(server="http://127.0.0.1:8001")
    del made["contexts"][0]["context"]["user"]
    put(made)
    assert load().server.address == "http://127.0.0.1:8001"
    assert token(load()) == ""


@pytest.mark.parametrize(
    "cluster", [{}, {"certificate-authority-data": b64(CA)}, {"insecure-skip-tls-verify": True}]
)
def test_a_server_without_a_scheme_is_reached_as_by_kubectl(
    put: Any, cluster: dict[str, Any]
) -> None:
    """Without encryption, whatever else the cluster names, and so without credentials."""
    put(content(server="10.0.0.1:6443", **cluster))
    assert load().server.address == "http://10.0.0.1:6443"
    assert token(load()) == ""


# -------------------------------------------------------------------------- who one is


def test_certificates_as_data_are_kept_in_no_file(
    put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    read: list[bytes] = []

    def reads(_: object, certificate: Path, key: Path, password: str) -> None:
        assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
        assert password == "", "OpenSSL would ask for it in the terminal"
        read.extend((certificate.read_bytes(), key.read_bytes()))

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", reads)
    user = {"client-certificate-data": b64("cert"), "client-key-data": b64("s3cret")}
    put(content({**user, "client-key": "/gone"}))
    found = load()
    assert "s3cret" not in repr(found)
    found._trust()
    assert read == [b"cert", b"s3cret"]
    assert not list((tmp_path / "tmp").iterdir())


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(put: Any, tmp_path: Path) -> None:
    paths = (str(tmp_path / "key"), str(tmp_path / "crt"))
    command = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=me")
    subprocess.run(
        [*command, "-passout", "pass:word", "-keyout", paths[0], "-out", paths[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    put(content({"client-certificate": paths[1], "client-key": paths[0]}))
    with pytest.raises(ClusterFault, match="certificates of context one cannot be used"):
        load().connections()


def test_data_that_is_no_data_is_said(put: Any) -> None:
    put(content({"client-certificate-data": "abc", "client-key-data": b64("key")}))
    assert "cannot be used: Incorrect padding" in fault()


def test_certificates_as_files_lie_relative_to_their_kubeconfig(put: Any, tmp_path: Path) -> None:
    user = {"client-certificate": "pki/me.crt", "client-key": str(tmp_path / "me.key")}
    put(content(name="first"))
    put(content(user, name="second", **{"certificate-authority": "ca.crt"}), "sub/config")
    (tmp_path / "sub" / "pki").mkdir()
    for path in ("sub/pki/me.crt", "me.key", "sub/ca.crt"):
        (tmp_path / path).write_text(path)
    found = load("second")
    assert (found.identity.certificate, found.identity.key) == (b"sub/pki/me.crt", b"me.key")
    assert found.server.authority == b"sub/ca.crt"
    (tmp_path / "me.key").unlink()
    assert f"{tmp_path}/me.key: No such file or directory" in fault("second")


def test_each_part_lies_relative_to_the_file_that_holds_it(put: Any, tmp_path: Path) -> None:
    """The context, its cluster and its user may be in three files."""
    user = {
        "client-certificate": "me.crt", "client-key": "me.key", "tokenFile": "token",
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "bin/never-run"},
    }  # fmt: skip
    made = content(user, **{"certificate-authority": "ca.crt"})
    put({name: made[name] for name in ("contexts", "current-context")}, "contexts/config")
    put({"clusters": made["clusters"]}, "clusters/config")
    put({"users": made["users"]}, "users/config")
    for path in ("clusters/ca.crt", "users/me.crt", "users/me.key", "users/token"):
        (tmp_path / path).write_text(path)
    found = load()
    assert found.server.authority == b"clusters/ca.crt"
    assert (found.identity.certificate, found.identity.key) == (b"users/me.crt", b"users/me.key")
    assert token(found) == "Bearer users/token"
    (tmp_path / "users" / "bin").mkdir()
    plugin(tmp_path / "users" / "bin" / "sign-in", answer(token=TOKEN))
    put({"users": [{"name": "u-one", "user": exec_user("bin/sign-in")}]}, "users/config")
    assert token(load()) == f"Bearer {TOKEN}"


def test_a_token_in_a_file_is_read_again_each_time(put: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    put(content({"tokenFile": "token"}))
    found = load()
    assert token(found) == "Bearer first"
    (tmp_path / "token").write_text("second\n")
    assert token(found) == token(load()) == "Bearer second"
    (tmp_path / "token").unlink()
    assert token(found) == "Bearer first", "a file that is being replaced"
    assert f"{tmp_path}/token: No such file" in fault()


def test_name_and_password_and_tls_and_proxy(put: Any) -> None:
    put(
        content(
            {"username": "ada", "password": "pw"},
            **{
                "insecure-skip-tls-verify": True,
                "tls-server-name": "inner.example.com",
                "proxy-url": "http://proxy:3128",
            },
        )
    )
    found = load()
    assert token(found) == "Basic " + b64("ada:pw")
    assert found.server.verified is False
    assert found.options() == {"server_hostname": "inner.example.com", "proxy": "http://proxy:3128"}


def test_what_cannot_work_is_said(put: Any) -> None:
    put(content(**{"proxy-url": "socks5://proxy:1080"}))
    assert "proxy-url is neither http:// nor https://" in fault()
    for name in ("azure", "gcp"):
        put({**content({"auth-provider": {"name": name}}, name=name)})
        assert f"auth-provider {name} is no longer supported" in fault(name)
    put(content(name="nowhere", server=""))
    assert "its cluster has no server" in fault("nowhere")
    put(content(name="half", **{"insecure-skip-tls-verify": "false"}))
    assert load("half").server.verified, "only true itself turns the check off"


# ---------------------------------------------------------------------------- plug-ins


def plugin(path: Path, body: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


def exec_user(command: str, **more: Any) -> dict[str, Any]:
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": command, **more}}


def answer(**status: str) -> str:
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return f"print({json.dumps({**said, 'status': status})!r})"


def test_a_plugin_is_asked_for_a_token(put: Any, tmp_path: Path) -> None:
    ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = (
        "import json, os, sys\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert info['spec']['cluster']['server'] == 'https://one.example.com:6443'\n"
        "assert info['spec']['interactive'] is False and not sys.stdin.read()\n"
        "assert (sys.argv[1:], os.environ['PROFILE']) == (['get', 'token'], 'mine')\n"
    )
    plugin(tmp_path / "sign-in", body + answer(token=TOKEN, expirationTimestamp=ends))
    user = exec_user(
        "./sign-in", args=["get", "token"], env=[{"name": "PROFILE", "value": "mine"}],
        provideClusterInfo=True,
    )  # fmt: skip
    put(content(user))
    assert token(load()) == f"Bearer {TOKEN}"


def test_a_plugin_may_give_a_certificate(put: Any, tmp_path: Path) -> None:
    plugin(tmp_path / "p", answer(clientCertificateData="PEM", clientKeyData="KEY"))
    put(content(exec_user("./p"), **{"certificate-authority-data": b64(CA)}))
    found = load()
    assert (found.identity.certificate, found.identity.key) == (b"PEM", b"KEY")
    assert found.server.authority == CA.encode()
    assert found.identity.due == math.inf


@pytest.mark.parametrize(("seconds", "ahead"), [(3600, 60), (40, 20)])
def test_what_a_plugin_gave_is_due_before_it_ends(
    put: Any, tmp_path: Path, seconds: int, ahead: int
) -> None:
    ends = datetime.now(UTC) + timedelta(seconds=seconds)
    plugin(tmp_path / "p", answer(token=TOKEN, expirationTimestamp=ends.isoformat()))
    put(content(exec_user("./p")))
    assert load().identity.due == pytest.approx(ends.timestamp() - ahead, abs=15)


def test_credentials_that_seem_to_have_ended_are_the_servers_to_judge(
    put: Any, tmp_path: Path
) -> None:
    """This machine's clock may be an hour ahead of the one that gave them."""
    ends = (datetime.now(UTC) - timedelta(minutes=50)).isoformat()
    plugin(tmp_path / "p", answer(token=TOKEN, expirationTimestamp=ends))
    put(content(exec_user("./p")))
    found = load()
    assert token(found) == f"Bearer {TOKEN}"
    assert found.identity.due == math.inf  # else each request would run the plug-in again


LONG = "A1b2" * 20


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"import sys; print('{TOKEN}'); sys.exit('session ended; token: {LONG} {TOKEN}')",
         "exit code 1: session ended; token…"),
        ("import sys; sys.exit(3)", "exit code 3."),
        ("import sys; sys.exit('no way by http://ada:s3cret@proxy:3128 to the portal')",
         "exit code 1: no way by http://…@proxy:3128 to the portal."),
        (f"print('{TOKEN}')", "it printed no JSON"),
        ("print('[]')", "no ExecCredential with a status"),
        (answer(), "neither a token nor a certificate"),
        (answer(clientCertificateData="PEM"), "neither a token nor a certificate"),
        (answer(token=TOKEN, expirationTimestamp="2020-01-01T00:00:00Z"),
         "its credentials expired at 2020-01-01"),
        (answer(token=TOKEN).replace("k8s.io/v1", "k8s.io/v1beta1"), "another version"),
    ],
)  # fmt: skip
def test_a_plugin_that_fails_is_said_in_its_own_words(
    put: Any, tmp_path: Path, body: str, said: str
) -> None:
    plugin(tmp_path / "p", body)
    put(content(exec_user("./p")))
    found = fault()
    assert said in found
    assert LONG not in found


def test_a_plugin_that_is_not_there_is_said_with_its_own_hint(put: Any) -> None:
    put(content(exec_user("no-such-program", installHint="Get it from the portal.")))
    found = fault()
    assert "no-such-program of the kubeconfig cannot be started: No such file" in found
    assert "Get it from the portal." in found


def test_a_plugin_that_says_nothing_is_not_waited_for_for_ever(
    put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ciao_kernel.kube.exec_plugin._TIMEOUT", 0.2)
    plugin(tmp_path / "p", "import time; time.sleep(60)")
    put(content(exec_user("./p")))
    assert "it gave no answer for 0 seconds." in fault()


def test_a_question_that_nobody_answered_is_shown(
    put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ciao_kernel.kube.exec_plugin._TIMEOUT", 5.0)
    asks = f"To sign in, open https://login.example.com and enter the code AB12. {LONG}"
    plugin(tmp_path / "p", f"import sys, time; print({asks!r}, file=sys.stderr); time.sleep(60)")
    put(content(exec_user("./p")))
    found = fault()
    assert "seconds: To sign in, open https://login.example.com and enter the code AB12." in found
    assert LONG not in found


# ------------------------------------------------------------------------------- in a pod


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account as it is mounted."""
    folder = tmp_path / "account"
    folder.mkdir()
    for name, text in (("token", "first\n"), ("ca.crt", CA), ("namespace", "team\n")):
        (folder / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


def test_a_pod_uses_its_account_and_reads_a_new_token(account: Path) -> None:
    assert configured.configured()
    found = load()
    assert (found.namespace, found.source) == ("team", "service account")
    assert found.server.address == "https://10.0.0.1:443"
    assert found.server.authority == CA.encode()
    assert token(found) == "Bearer first"
    (account / "token").write_text("second\n")
    assert token(found) == "Bearer second"


def test_a_pod_in_a_network_of_ipv6(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert load().server.address == "https://[fd00::1]:443"


def test_a_stray_kubeconfig_variable_does_not_take_the_account_away(
    account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/home/of/the/server/config")
    assert load().source == "service account"
    assert "there is no context staging" in fault("staging")


def test_an_account_without_a_certificate_is_said(account: Path) -> None:
    (account / "ca.crt").unlink()
    assert "the pod's service account cannot be used" in fault()


# ------------------------------------------------------------------------------- renewals


def renewed(change: Callable[[], object]) -> access.Access:
    """Return the access of a client whose credentials are renewed after a change."""

    async def main() -> access.Access:
        async with Client(await access.load()) as client:
            change()
            await client.renew()
            return client.access

    return asyncio.run(main())


def test_a_renewal_changes_the_credentials_and_no_place(put: Any) -> None:
    path = put(content())
    changed = content({"token": "new"})
    changed["contexts"][0]["context"]["namespace"] = "elsewhere"
    other = content(name="two")
    for part in ("clusters", "users", "contexts"):
        changed[part] += other[part]
    changed["current-context"] = "two"
    found = renewed(lambda: path.write_text(yaml.safe_dump(changed)))
    assert token(found) == "Bearer new"
    assert (found.context, found.namespace) == ("one", "ns-one")
    assert found.server.address == "https://one.example.com:6443"


@pytest.mark.usefixtures("account")
def test_a_kubeconfig_that_comes_later_does_not_move_a_pods_kernel(put: Any) -> None:
    with pytest.raises(ClusterFault) as caught:
        renewed(lambda: put(content()))
    assert "no longer accepts the service account" in caught.value.message
    assert "context one" in caught.value.hint
