"""What the executor's and the cluster's words mean for a user."""

from __future__ import annotations

import pytest

from ciao_kernel.builders import outcome
from ciao_kernel.errors import CiaoError, ClusterFault, RegistryFault, SourceError
from ciao_kernel.oci.reference import parse
from ciao_kernel.plugins import PodEnd

TARGET = parse("reg.example.com:5000/team/cells")
PUSH = (
    "error checking push permissions -- make sure you entered the correct tag name, and that you "
    "are authenticated correctly, and try again: checking push permission for x: "
)
BUILD = "error building image: "


def fault(*lines: str, code: int | None = 1, reason: str = "", message: str = "") -> CiaoError:
    text = "FROM a\n\nRUN pip install \\\n  app\nRUN exit 7\n"
    end = PodEnd(code, message, reason, lines[:20], lines[-200:])
    return outcome.fault(end, text, "Dockerfile", TARGET, "team-a")


REGISTRIES = [
    (PUSH + "UNAUTHORIZED: authentication required", "does not let the build push", "%pushSecret"),
    (PUSH + "unexpected status code 405 Method Not Allowed", "read-only", "%registry"),
    (
        PUSH + "Get https://x: http: server gave HTTP response to HTTPS client",
        "reg.example.com:5000 speaks http",
        "plainRegistries=reg.example.com:5000",
    ),
    (
        PUSH + "x509: certificate signed by unknown authority; GET http://x: 400 Bad Request: "
        "Client sent an HTTP request to an HTTPS server",
        "not trusted",
        "registryAuthority",
    ),
    (
        PUSH + "dial tcp: lookup reg on 10.96.0.10:53: server misbehaving",
        "does not find the registry: reg",
        "by the name",
    ),
    (
        "error pushing image: failed to push: dial tcp 1.2.3.4:5: connect: connection refused",
        "does not answer",
        "Is it up",
    ),
    (
        BUILD + "unable to complete operation after 0 attempts, last error: GET "
        "http://x/v2/y/manifests/nope: MANIFEST_UNKNOWN: manifest unknown",
        "base image of the build does not exist",
        "%pushSecret",
    ),
]


@pytest.mark.parametrize(("line", "says", "helps"), REGISTRIES)
def test_what_a_registry_says(line: str, says: str, helps: str) -> None:
    found = fault("Retrieving", line)
    assert isinstance(found, RegistryFault)
    assert says in found.message
    assert helps in found.hint
    assert found.hint.endswith(line)


def test_a_digest_proves_nothing() -> None:
    assert fault(REGISTRIES[0][0], message=f"sha256:{'a' * 64}")


@pytest.mark.parametrize(
    ("reason", "code", "message", "says"),
    [
        ("OOMKilled", 137, "", "more memory"),
        ("DeadlineExceeded", 2, "", "took longer"),
        ("Evicted", 2, "Pod ephemeral local storage usage exceeds 200Mi. ", "exceeds 200Mi."),
        ("", None, "", "nobody says why"),
    ],
)
def test_what_the_cluster_did(reason: str, code: int | None, message: str, says: str) -> None:
    found = fault("anything", reason=reason, code=code, message=message)
    assert isinstance(found, ClusterFault)
    assert says in found.message


LOG = 'time="2026-01-01T00:00:00Z" level=info msg='
EXIT = BUILD + "error building stage: failed to execute command: waiting for process to exit: "


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            ['error building image: parsing dockerfile: dockerfile parse error on line 2: unknown '
             'instruction: RUNN (did you mean RUN?)'],
            "Dockerfile, line 2: unknown instruction: RUNN (did you mean RUN?).",
        ),
        (
            [BUILD + "error building stage: failed to get fileinfo for /kaniko/buildcontext/no.py: "
             "lstat /kaniko/buildcontext/no.py: no such file or directory"],
            "copies no.py, which is not in the build's files",
        ),
        (
            [f'{LOG}"RUN pip install    app"', "no", f'{LOG}"RUN exit 7"', EXIT + "exit status 7"],
            "Dockerfile, line 5: `exit 7` ended with exit code 7.",
        ),
        (
            [f'{LOG}"RUN pip install    app"', EXIT + "exit status 2"],
            "Dockerfile, line 3: `pip install    app` ended with exit code 2.",
        ),
        (
            ["WARNING: [Errno -3] Temporary failure in name resolution",
             "ERROR: No matching distribution found for app", EXIT + "exit status 1"],
            "does not reach the package index",
        ),
        (["ERROR: No matching distribution found for x", EXIT + "exit status 1"], "finds no x in"),
        (["User for 10.0.0.1: pip", "EOFError: EOF", EXIT + "exit status 2"], "who asks"),
        (["E: Unable to locate package nope", EXIT + "exit status 100"], "no Debian package nope"),
        (["ciao: there is no conda in this image", EXIT + "exit status 64"], "has no conda"),
    ],
)  # fmt: skip
def test_what_the_user_asked_for(lines: list[str], says: str) -> None:
    found = fault(*lines)
    assert isinstance(found, SourceError)
    assert says in found.message
    assert "level=info" not in found.hint


def test_a_command_that_is_killed_while_the_executor_goes_on() -> None:
    found = fault("Killed", EXIT + "exit status 137", code=137)
    assert isinstance(found, ClusterFault)
    assert "more memory" in found.message


def test_a_flag_that_it_does_not_know_is_in_its_first_line() -> None:
    found = fault("Error: unknown flag: --x", "Usage:", *[f"  --flag{n}" for n in range(300)])
    assert found.message == "the build ended with exit code 1: unknown flag: --x."
    assert len(found.hint.splitlines()) == 21


def test_no_words_at_all() -> None:
    assert fault(code=255).message == "the build ended with exit code 255."
