"""Completion in bash, help, and what a command costs before it does anything."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.api_server import ApiServer
from tests.integration.cli.command import QUICK, User, until

LOOKING = [
    "jobs", "describe", "logs", "attach", "rerun", "stacks", "debug", "top", "tensorboard",
    "profile", "delete", "suspend", "resume", "warm", "exec", "fetch", "cp",
]  # fmt: skip
VERBS = ["run", *LOOKING, "config", "doctor", "log", "magics", "install", "uninstall"]
SLOW = {"IPython", "ipykernel", "jupyter_client", "rich", "traitlets"}

TAB = """
eval "$(register-python-argcomplete ciao)"
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; COMP_KEY=9
read -ra COMP_WORDS <<< "$COMP_LINE"
[[ "$COMP_LINE" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
answer=$(complete -p ciao | sed -E 's/.*-F ([^ ]+) .*/\\1/')
$answer ciao "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def tab(ciao: User, line: str) -> list[str]:
    """What bash offers behind a line, with the line of `ciao --help` in its .bashrc."""
    done = ciao.shell(TAB.format(line=shlex.quote(line)))
    assert done.err == ""
    return [word.rstrip() for word in done.out.splitlines() if word]


def test_the_line_for_bashrc_is_in_the_help(ciao: User) -> None:
    assert 'eval "$(register-python-argcomplete ciao)"' in ciao("--help").out
    assert TAB.strip().splitlines()[0] in ciao("--help").out


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("ciao ", VERBS),
        ("ciao de", ["describe", "debug", "delete"]),
        ("ciao run --fram", ["--framework"]),
        ("ciao run train.py --nproc", ["--nproc-per-node"]),
        ("ciao run --framework ten", ["tensorflow"]),
        ("ciao run --framework=ten", ["tensorflow"]),
        ("ciao run --clean-policy ", ["running", "all", "none"]),
        ("ciao run t", ["train.py"]),
        ("ciao run train.py --files d", ["data.csv"]),
        (
            "ciao run --framework tensorflow --worker 2 --follow w",
            ["worker", "worker-0", "worker-1"],
        ),
        ("ciao jobs --output ", ["text", "json"]),
        ("ciao config stopG", ["stopGrace="]),
        ("ciao magics nproc", ["nprocPerNode"]),
    ],
)
def test_tab_offers_words_of_the_command(ciao: User, line: str, offers: list[str]) -> None:
    for name in ("train.py", "text.txt", "data.csv"):
        ciao.file(name, "")
    assert tab(ciao, line) == offers


def wait_for_offers(ciao: User, line: str, words: list[str]) -> None:
    """Tab waits for jobs some seconds, which a busy machine may exceed."""
    until(lambda: tab(ciao, line) == words, f"{words} behind {line!r}")


def test_tab_offers_jobs_and_their_replicas(ciao: User) -> None:
    ciao.detach("mnist", QUICK)
    for verb in ("attach", "logs", "describe", "delete"):
        wait_for_offers(ciao, f"ciao {verb} ", ["mnist"])
    assert tab(ciao, "ciao logs other") == []
    wait_for_offers(ciao, "ciao logs mnist --replica ", ["worker", "worker-0", "worker-1"])


def test_tab_is_silent_where_something_is_broken(ciao: User) -> None:
    ciao.config.parent.mkdir(parents=True)
    ciao.config.write_text("color = = \n")
    assert tab(ciao, "ciao attach ") == []
    assert tab(ciao, "ciao de") == ["describe", "debug", "delete"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(ciao: User, verb: str) -> None:
    done = ciao(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: ciao {verb} ")
    assert "%%" not in done.out
    assert "%ciao" not in done.out
    assert ciao("help", verb).out == done.out


def test_help_without_a_verb_lists_all(ciao: User) -> None:
    done = ciao()
    assert done.code == 0
    assert done.out == ciao("--help").out == ciao("help").out
    assert all(re.search(rf"^ +{verb}\b", done.out, re.M) for verb in VERBS)


def test_magics_list_and_explain_the_directives(ciao: User) -> None:
    assert "%worker" in ciao("magics").out
    assert "%cleanPolicy" in ciao("magics", "clean-policy").out
    assert ciao("magics", "%worker=2").out == ciao("magics", "worker").out
    assert {one["name"] for one in ciao("magics", "-o", "json").json} >= {"worker", "files"}
    assert ciao("magics", "worker", "--output", "json").json["example"] == "%worker=1"
    done = ciao("magics", "wroker")
    assert done.code == 2
    assert "Did you mean worker?" in done.err


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["jobs", "--help"], ["jobs"]])
def test_quick_answers_import_nothing_slow(ciao: User, words: list[str]) -> None:
    assert not imported(ciao, words) & SLOW


def test_a_list_of_jobs_imports_only_what_it_needs(ciao: User) -> None:
    """Each of these would be found in the time of every command."""
    assert not imported(ciao, ["jobs"]) & {
        "yaml",
        "aiohttp",
        "ciao_kernel.session.tensorboard.board",
    }


def test_a_list_of_a_clusters_jobs_needs_no_library_of_streams(ciao: User, tmp_path: Path) -> None:
    with ApiServer(tmp_path) as server:
        assert "aiohttp" not in imported(ciao, ["jobs"], KUBECONFIG=str(server.kubeconfig))


@pytest.mark.parametrize("line", ["ciao ", "ciao run --framework ten", "ciao attach "])
def test_tab_imports_nothing_slow(ciao: User, line: str) -> None:
    env = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "IFS": "\v"}
    assert not imported(ciao, [], **env) & SLOW


def test_the_version_costs_little_more_than_python(
    ciao: User, figure: Callable[[str], None]
) -> None:
    """It imports what Python brings, and of others what completes words."""
    seconds = []
    for _ in range(3):
        process = ciao.start("--version")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds.append(usage.ru_utime + usage.ru_stime)
        assert process.communicate()[0].startswith("ciao ")
    figure(f"{min(seconds) * 1000:.0f} ms of a processor")
    before = imported_by(ciao, ["-c", "pass"])  # what the environment's own path files import
    ours = imported(ciao, ["--version"]) - before - sys.stdlib_module_names
    # The last is Jython's: the standard library's `copy` looks for it.
    assert {name for name in ours if "." not in name} <= {"ciao_kernel", "argcomplete", "org"}


def imported(ciao: User, words: list[str], **env: str) -> set[str]:
    """Full names of all modules that a command imports, and their first parts."""
    names = imported_by(ciao, ["-m", "ciao_kernel.cli", *words], **env)
    assert "ciao_kernel" in names
    return names


def imported_by(ciao: User, words: list[str], **env: str) -> set[str]:
    """Full names of all modules that Python imports for a command line, and their first parts."""
    # argcomplete answers on file descriptor 8.
    bash = ["bash", "-c", 'exec 8>/dev/null 9>/dev/null; exec "$0" "$@"']
    done = subprocess.run(
        [*bash, sys.executable, "-X", "importtime", *words],
        env={**ciao.env, **env},
        cwd=ciao.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    names = re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.M)
    return {part for name in names for part in (name, name.partition(".")[0])}
