"""What the executor's and the cluster's words mean for a user."""

from __future__ import annotations

import pytest

from ciao_kernel.builders import build_errors, dockerfile_rewrite
from ciao_kernel.errors import CiaoError, ClusterFault, RegistryFault, SourceError
from ciao_kernel.oci.reference import parse
from ciao_kernel.plugins import PodResult

TARGET = parse("reg.example.com:5000/team/cells")
PUSH = (
    "error checking push permissions -- make sure you entered the correct tag name, and that you "
    "are authenticated correctly, and try again: checking push permission for x: "
)
BUILD = "error building image: "


def fault(*lines: str, code: int | None = 1, reason: str = "", message: str = "") -> CiaoError:
    text = "FROM a\n\nRUN pip install \\\n  app\nRUN exit 7\n"
    end = PodResult(code, message, reason, lines[:20], lines[-200:])
    return build_errors.fault(end, text, "Dockerfile", TARGET, "team-a")


REGISTRIES = [
    (PUSH + "UNAUTHORIZED: authentication required", "does not let the build push", "%pushSecret"),
    (PUSH + "unexpected status code 405 Method Not Allowed", "read-only", "%registry"),
    (
        PUSH + "Get https://x: http: server gave HTTP response to HTTPS client",
        "reg.example.com:5000 speaks http",
        "plainRegistries+=reg.example.com:5000",
    ),
    (
        PUSH + 'Get "https://x/v2/": tls: first record does not look like a TLS handshake',
        "reg.example.com:5000 speaks http",
        "plainRegistries+=reg.example.com:5000",
    ),
    (
        PUSH + "x509: certificate signed by unknown authority; GET http://x: 400 Bad Request: "
        "Client sent an HTTP request to an HTTPS server",
        "not trusted",
        "registryAuthority",
    ),
    (
        PUSH + "dial tcp: lookup reg on 10.96.0.10:53: server misbehaving",
        "cannot resolve the name of the registry: reg",
        "as you wrote it",
    ),
    (
        "error pushing image: failed to push: dial tcp 1.2.3.4:5: connect: connection refused",
        "does not answer",
        "Is it up",
    ),
    (
        PUSH + "Get https://x/v2/: read tcp 10.244.1.9:40312->1.2.3.4:443: i/o timeout",
        "the registry reg.example.com:5000 does not answer",
        "Is it up",
    ),
    (
        PUSH + "POST https://x/v2/: unexpected status code 403 Forbidden",
        "reg.example.com:5000 does not let the build push",
        "the right to push",
    ),
    (
        BUILD + "GET https://base.corp/v2/x/manifests/1: UNAUTHORIZED: authentication required",
        "the registry base.corp does not let the build read its image",
        "the right to read",
    ),
    (
        BUILD + 'Get "https://base.corp:5/v2/": x509: certificate signed by unknown authority',
        "the certificate of the registry base.corp:5 is",
        "registryAuthority",
    ),
    (
        "error pushing image: failed to push to destination x: PUT https://x/v2/: unexpected "
        "status code 500: write /var/lib/x: no space left on device",
        "the registry reg.example.com:5000 has no space left",
        "%registry",
    ),
    (
        "error pushing image: PATCH http://x/v2/: UNKNOWN: unknown error; "
        "map[DriverName:filesystem Enclosed:map[Err:28 Op:write Path:/x]]",
        "the registry reg.example.com:5000 has no space left",
        "%registry",
    ),
    (
        "error pushing image: write tcp 1.2.3.4:5->6.7.8.9:5000: write: connection reset by peer",
        "does not answer",
        "Is it up",
    ),
    (
        BUILD + "GET https://index.docker.io/v2/x/manifests/1: TOOMANYREQUESTS: You have reached "
        "your pull rate limit",
        "the registry index.docker.io accepts no more requests for now",
        "%pushSecret",
    ),
    (
        PUSH + "POST https://x/v2/: unexpected status code 429 Too Many Requests",
        "the registry reg.example.com:5000 accepts no more",
        "some minutes",
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


def test_a_secret_whose_entry_the_build_does_not_find() -> None:
    line = PUSH + "UNAUTHORIZED: authentication required"
    end = PodResult(1, "", "", (line,), (line,))
    found = build_errors.fault(end, "FROM a\n", "", TARGET, "team-a", "my-{0}")
    assert found.hint.startswith("The Secret my-{0} needs an entry with the right to push.")
    assert "the registry's host alone" in found.hint


@pytest.mark.parametrize(
    ("reason", "code", "message", "says"),
    [
        ("OOMKilled", 137, "", "more memory"),
        ("DeadlineExceeded", 2, "", "took longer"),
        ("Evicted", 2, "Pod ephemeral local storage usage exceeds 200Mi. ", "exceeds 200Mi."),
        ("Deleted", None, "Eviction API: evicting", "removed from team-a: Eviction API: evicting."),
        ("Terminated", 2, "Pod was terminated in response to imminent node shutdown.", "shutdown."),
        ("", None, "", "no reason given"),
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
            "cannot reach the package index",
        ),
        (["ERROR: No matching distribution found for x", EXIT + "exit status 1"], "finds no x in"),
        (
            ["ERROR: No matching distribution found for x>=9 (from app)", EXIT + "exit status 1"],
            "finds no x>=9 in the build.",
        ),
        (
            ["User for 10.0.0.1: pip", "EOFError: EOF", EXIT + "exit status 2"],
            "requires authentication",
        ),
        (
            [f'{LOG}"RUN python3 -m pip install app"', "User for 10.0.0.1: ",
             EXIT + "exit status 2"],
            "requires authentication",
        ),
        (
            [f'{LOG}"RUN /opt/s2i/assemble"', "Looking in indexes: https://a.b", "Collecting app",
             "ERROR: HTTP error 403 Client Error", EXIT + "exit status 1"],
            "requires authentication",
        ),
        (
            [f'{LOG}"RUN pip install    app"', "WARNING: No matching distribution found for x",
             "E: Unable to locate package nope", f'{LOG}"RUN exit 7"',
             "requests.HTTPError: 403 Client Error: Forbidden for url", EXIT + "exit status 7"],
            "Dockerfile, line 5: `exit 7` ended with exit code 7.",
        ),
        (["E: Unable to locate package nope", EXIT + "exit status 100"], "no Debian package nope"),
        (["ciao: there is no conda in this image", EXIT + "exit status 64"], "has no conda"),
    ],
)  # fmt: skip
def test_what_the_user_asked_for(lines: list[str], says: str) -> None:
    found = fault(*lines)
    assert isinstance(found, SourceError)
    assert says in found.message
    assert "level=info" not in found.hint


def retries(error: str, *left: int) -> list[str]:
    return [
        f"WARNING: Retrying (Retry(total={count}, connect=None)) after connection broken by "
        f"'{error}': /simple/app/"
        for count in left
    ]


NOTHING = ["ERROR: No matching distribution found for app", EXIT + "exit status 1"]
UNTRUSTED = (
    "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify "
    "failed: unable to get local issuer certificate'))"
)


@pytest.mark.parametrize(
    "lines",
    [
        retries('ReadTimeoutError("Read timed out.")', 4, 3, 2, 1, 0),
        retries("ProxyError('Cannot connect to proxy.')", 0),
        ["Failed to resolve 'pypi.example.com'"],
        ["Could not fetch URL https://a.b: connection error: refused - skipping"],
    ],
)
def test_an_index_that_the_pod_cannot_reach(lines: list[str]) -> None:
    found = fault(f'{LOG}"RUN pip install app"', *lines, *NOTHING)
    assert found.message == (
        "pip finds no app in the build, because its pod cannot reach the package index."
    )
    assert "%pipSecret" in found.hint


def test_an_index_whose_certificate_is_not_trusted() -> None:
    found = fault(*retries(UNTRUSTED, 4, 3, 2, 1, 0), *NOTHING)
    assert "does not trust the certificate of the package index" in found.message
    assert "PIP_CERT" in found.hint


def test_a_request_that_was_answered_later_is_not_the_cause() -> None:
    lines = [*retries("ReadTimeoutError('')", 4), *retries(UNTRUSTED, 3), "Collecting app"]
    assert fault(*lines, *NOTHING).message == "pip finds no app in the build."


FETCH = (
    "Failed to fetch http://deb.debian.org/debian/x  Temporary failure resolving 'deb.debian.org'"
)


@pytest.mark.parametrize(
    "lines",
    [
        (f"W: {FETCH}", "W: Some index files failed to download.",
         "E: Unable to locate package git"),
        (f"E: {FETCH}", "E: Unable to fetch some archives, maybe run apt-get update?"),
        ("E: Could not connect to mirror:80 (10.0.0.1). - connect (111: Connection refused)",),
    ],
)  # fmt: skip
def test_a_package_repository_that_the_pod_cannot_reach(lines: tuple[str, ...]) -> None:
    found = fault(
        f'{LOG}"RUN apt-get update && apt-get install git"', *lines, EXIT + "exit status 100"
    )
    assert isinstance(found, SourceError)
    assert "cannot reach a package repository of the base image" in found.message
    assert "a mirror that pods can reach" in found.hint


def test_a_failure_after_a_warning_of_apt_or_of_another_program_is_its_own() -> None:
    for line in f"W: {FETCH}", "curl: (6) Could not resolve host: a.b":
        found = fault(f'{LOG}"RUN exit 7"', line, EXIT + "exit status 7")
        assert found.message == "Dockerfile, line 5: `exit 7` ended with exit code 7."


def test_a_command_that_is_killed_while_the_executor_goes_on() -> None:
    found = fault("Killed", EXIT + "exit status 137", code=137)
    assert isinstance(found, ClusterFault)
    assert "more memory" in found.message


def test_a_node_without_space() -> None:
    for lines in (
        [BUILD + "failed to write: /usr/lib/x: no space left on device"],
        ["cp: error writing '/x': No space left on device", EXIT + "exit status 1"],
    ):
        assert fault(*lines).message == "the node has no space left for the build."


def test_a_command_whose_first_line_is_long_gone() -> None:
    found = fault(f'{LOG}"RUN exit 7"', *["much"] * 300, EXIT + "exit status 2")
    assert found.message == "a command of the build ended with exit code 2."


def test_a_flag_that_it_does_not_know_is_in_its_first_line() -> None:
    found = fault("Error: unknown flag: --x", "Usage:", *[f"  --flag{n}" for n in range(300)])
    assert found.message == "the build ended with exit code 1: unknown flag: --x."
    assert len(found.hint.splitlines()) == 21


def test_no_words_at_all() -> None:
    assert fault(code=255).message == "the build ended with exit code 255."


def test_lines_are_those_of_the_users_file() -> None:
    text = dockerfile_rewrite.with_cache_key("FROM a\n\nRUN exit 7\nWHAT\n", "team-a/index")

    def said(*lines: str) -> str:
        end = PodResult(1, "", "", lines, lines)
        return build_errors.fault(end, text, "Dockerfile", TARGET, "team-a").message

    assert said(BUILD + "dockerfile parse error on line 5: unknown instruction: WHAT").startswith(
        "Dockerfile, line 4: unknown"
    )
    assert "line 3:" in said(
        'level=info msg="RUN exit 7"',
        BUILD + "building stage: failed to execute command: waiting for process to exit: "
        "exit status 7",
    )
