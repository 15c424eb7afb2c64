"""The verbs without processes: words, the user's file, what is written where."""

from __future__ import annotations

import asyncio
import functools
import io
import os
import pty
import shlex
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from ciao_kernel import commands
from ciao_kernel.commands import (
    completion,
    describe,
    jobs,
    log,
    logs,
    run,
    settings_file,
    shared_arguments,
    warm,
)
from ciao_kernel.commands.shared_arguments import line_count
from ciao_kernel.commands.verb_table import VERBS
from ciao_kernel.config import Settings
from ciao_kernel.display.errors import colored, for_terminal, uncolored
from ciao_kernel.display.terminal import TerminalDisplay, show_error
from ciao_kernel.errors import BackendError, DirectiveError, JobFailed, SettingError, UsageError
from ciao_kernel.jupyter.messages import ciao_error
from ciao_kernel.magics.header import Style
from ciao_kernel.model import (
    ALL_LINES,
    Event,
    Job,
    JobSpec,
    Notice,
    Output,
    Owner,
    Replica,
    ReplicaStatus,
    State,
    Status,
)
from ciao_kernel.model.checkpoint import Checkpoint
from ciao_kernel.model.queries import (
    WHOLE_LOG,
    ClusterEvent,
    Details,
    LogOptions,
    Where,
    last_lines,
)
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session

WORKER = Replica("worker", 0)


def parse(*words: str) -> Any:
    written: list[str] = []
    args = commands.parse(words, written.append)
    return args if args is not None else "".join(written)


# ------------------------------------------------------------------------------- words


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_module_with_help(verb: str) -> None:
    assert parse(verb, "--help") == parse("help", verb)
    assert parse(verb, "--help").startswith(f"usage: ciao {verb} ")


def test_help_speaks_as_the_caller_types_it() -> None:
    lines = commands.help_text().splitlines()
    for name, verb in VERBS.items():
        assert [line for line in lines if line.split()[1:2] == [name] and verb.help in line]
    assert "bashrc" not in commands.help_text()
    assert "bashrc" in parse("--help")


def test_every_directive_is_an_option_of_run() -> None:
    text = parse("run", "--help")
    for entry in Registry().table.entries:
        option = "--" + "".join(f"-{c.lower()}" if c.isupper() else c for c in entry.name)
        assert f" {option}" in text


def test_options_become_directives() -> None:
    args = parse(
        "run", "f.py", "-d", "--worker=2", "--nproc-per-node", "3", "--files", "a 'b  #c'", "--",
        "--", "x y",
    )  # fmt: skip
    assert run._options(args, Registry().table) == {
        "detach": ["true"],
        "worker": ["2"],
        "nproc-per-node": ["3"],
        "files": ["a 'b  #c'"],
        "args": ["-- 'x y'"],
    }


def test_arguments_of_the_program_are_given_in_one_way() -> None:
    args = parse("run", "a.py", "--args=--epochs=3", "--", "more")
    with pytest.raises(UsageError, match="both in --args and after --"):
        run._options(args, Registry().table)


def spec(text: str, *words: str) -> JobSpec:
    """Return what `ciao run` makes of a file with this header, with these options."""
    registry = Registry()
    session = Session(registry, Owner("me"), Settings())
    options = run._options(parse("run", "f.py", *words), registry.table)
    return session.parse(f"{text}\nprint(1)\n", Style.FILE, options).spec


@pytest.mark.parametrize("value", ["a #b", "/my dir/python", "it's", "a;b", '"a"', "a\\b"])
def test_the_value_of_an_option_is_what_the_shell_gives(value: str) -> None:
    header = "#%framework=tensorflow\n#%worker=1"
    assert spec(header, "--context", value).cluster.context == value
    assert spec(header, "--python", value).python == value


def test_an_option_that_adds_up_takes_several_words() -> None:
    header = "#%framework=tensorflow\n#%worker=1"
    made = spec(header, "--node-selector", "disk=ssd zone=a", "--envsecret", "wandb s3")
    assert made.cluster.node_selector == (("disk", "ssd"), ("zone", "a"))
    for entry in Registry().table.entries:
        value = entry.example.rpartition(f"%{entry.name}")[2].removeprefix("=")
        if entry.repeatable:
            options = run._options(parse("run", "f.py", entry.option, value), Registry().table)
            (text,) = options[entry.option.removeprefix("--")]
            assert entry.kind.parse(text) == entry.kind.parse(value)


def test_the_value_of_an_option_may_be_missing_where_a_directive_has_none() -> None:
    header = "#%framework=tensorflow\n#%worker=1"
    made = spec(header, "--checkpoint", "--tensorboard", "--output-values")
    assert made.checkpoint == Checkpoint()
    assert (made.tensorboard, made.outputs) == ("logs", ("output/",))
    made = spec(
        header, "--checkpoint=claim/x", "--tensorboard", "runs", "--output-values", "a.csv,b"
    )
    assert made.checkpoint == Checkpoint("claim", "x")
    assert (made.tensorboard, made.outputs) == ("runs", ("a.csv", "b"))
    assert spec(header, "--output-values", "'a,b.csv' c").outputs == ("a,b.csv", "c")
    with pytest.raises(UsageError, match="--tensorboard cannot be"):
        spec(header, "--tensorboard", "")  # a variable of the shell may be unset


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        (["--warm"], 600),
        (["--warm=45m"], 2700),
        (["--warm", "1h"], 3600),
        (["--warm=false"], None),
        (["--no-warm"], None),
        (["--warm=45m", "--no-warm"], None),
        (["--no-warm", "--warm"], 600),
    ],
)
def test_warm_may_have_a_time_and_may_be_switched_off(
    words: list[str], seconds: int | None
) -> None:
    assert spec("#%framework=tensorflow\n#%warm=30m", *words).warm == seconds
    args = parse("run", *words, "f.py")
    run._give_file_back(args, Registry().table)
    assert args.file == "f.py"


@pytest.mark.parametrize(
    "words",
    [
        ["--warm", "train.py", "--no-warm"],
        ["--warm", "train.py", "--warm=45m"],
        ["--warm", "train"],
        ["-d", "--warm", "./bin/train"],
        ["--warm", "train", "--worker", "2"],
    ],
)
def test_the_program_may_stand_right_behind_warm(words: list[str]) -> None:
    args = parse("run", *words)
    run._give_file_back(args, Registry().table)
    assert args.file == next(word for word in words if "train" in word)
    assert args.file not in args.directive_warm


def test_a_wrong_time_of_warm_is_named() -> None:
    for value in ("soon", "", "1h #", "5m;%worker=2"):
        with pytest.raises(UsageError, match="--warm cannot be"):
            spec("#%framework=tensorflow", "--warm", value)


@pytest.mark.parametrize(
    ("words", "file", "checkpoint"),
    [
        (["--checkpoint", "f.py"], "f.py", Checkpoint()),
        (["--checkpoint", "--worker", "2", "f.py"], "f.py", Checkpoint()),
        (["--checkpoint", "claim", "f.py", "--tensorboard"], "f.py", Checkpoint("claim")),
        (["f.py", "--checkpoint", "g.py"], "f.py", Checkpoint("g.py")),
        (["--checkpoint", "claim"], None, Checkpoint("claim")),
        (["-m", "f", "--checkpoint", "g.py"], None, Checkpoint("g.py")),
    ],
)
def test_a_program_is_no_value_of_an_option_before_it(
    words: list[str], file: str | None, checkpoint: Checkpoint
) -> None:
    registry = Registry()
    args = parse("run", *words)
    run._give_file_back(args, registry.table)
    assert args.file == file
    options = {"framework": ["python"], **run._options(args, registry.table)}
    session = Session(registry, Owner("me"), Settings())
    assert session.parse("print(1)\n", Style.FILE, options).spec.checkpoint == checkpoint


def test_no_directive_hides_in_an_option() -> None:
    header = "#%framework=tensorflow\n#%worker=1"
    with pytest.raises(UsageError, match="--image"):
        spec(header, "--image", "a;%worker=5")
    with pytest.raises(UsageError, match="--output-values"):
        spec(header, "--output-values", "a;%worker=5")
    made = spec(header, "--python", "/x/a;%worker=5")
    assert (made.python, made.groups[0].count) == ("/x/a;%worker=5", 1)
    assert spec(header, "--context", "a;").cluster.context == "a;"
    assert spec(header, "--worker", "2;%cpu=1").groups[0].count == 2


def test_an_option_overrides_a_header_also_with_the_default() -> None:
    header = "#%framework=tensorflow\n#%worker=1\n#%detach\n#%dryrun=server\n#%builder=append"
    assert spec(header).detach
    assert not spec(header, "--no-detach").detach
    assert spec(header).dryrun
    assert not spec(header, "--no-dryrun").dryrun
    assert spec(header, "--no-detach").dryrun
    assert spec(header, "--builder", "auto").builder == "auto"


def test_a_volume_of_an_option_is_for_the_job_or_behind_its_role() -> None:
    header = "#%framework=tensorflow\n#%ps=1;%volume=a:x\n#%worker=1;%volume=b:y\n#%volume=c:z"

    def volumes(*words: str) -> list[list[str]]:
        made = spec(header, *words)
        return [[str(one) for one in made.volumes_of(group.role)] for group in made.groups]

    assert volumes("--worker", "3") == [["c:z", "a:x"], ["c:z", "b:y"]]
    assert volumes("--worker", "3;%volume=d:y") == [["c:z", "a:x"], ["c:z", "d:y"]]
    assert volumes("--volume", "d:y") == [["d:y"], ["d:y"]]
    with pytest.raises(UsageError, match="in replicas of the role worker") as caught:
        volumes("--worker", "2;%volume=d:z")
    assert "z is the folder of c" in caught.value.message


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu"], "Did you mean run?"),
        (["zzz"], "`ciao --help` lists all verbs."),
        (["--nope"], "no option --nope"),
        (["run", "f.py", "--wroker=2"], "Did you mean --worker?"),
        (["jobs", "--", "x"], "unknown argument"),
        (["logs", "a", "--tail", "many"], "--tail: expected a whole number, not 'many'."),
        (["profile", "--seconds", "x"], "--seconds: expected a number, not 'x'."),
        (["run", "f.py", "--dryrun=maybe"], "--dryrun"),
        (["run", "f.py", "--workers", "2"], "Did you mean --worker?"),
        (["run", "f.py", "--nproc_per_nod", "2"], "Did you mean --nproc-per-node?"),
        (["run", "f.py", "--env", "A=1"], "Did you mean --envvar?"),
        (["run", "f.py", "--mem=1Gi"], "Did you mean --memory?"),
        (["run", "f.py", "--vol", "d"], "Did you mean --volume?"),
        (["run", "f.py", "--ctx", "c"], "Did you mean --context?"),
        (["run", "f.py", "--nodes=2"], "Did you mean --worker?"),
        (["run", "f.py", "--timeout", "1h"], "Did you mean --deadline?"),
        (["run", "f.py", "--pvc", "d"], "Did you mean --volume?"),
        (["delete", "--older-than", "1d"], "Did you mean --older?"),
        (["run", "f.py", "--envvar", "A=1", "B=2"], "unknown argument B=…. Quote several pairs"),
        (["run", "f.py", "--dryrun=client"], "--dryrun or --no-dryrun or --dryrun=server."),
        (["run", "f.py", "--detach=false"], "-d or --detach or --no-detach."),
        (["logs", "a", "-f=yes"], "-f/--follow does not take the value"),
        (["run", "f.py", "--output", "model/"], "%output is the option --output-values."),
        (["fetch"], "required: NAME[/REPLICA]."),
        (["log", "mnist"], "`ciao logs mnist` shows the output of a job."),
        (["exec", "a/worker-0", "ls"], "Write a command after --."),
        (["delete", "a", "--all"], "unknown argument --all"),
        (["delete", "a", "--yes", "b", "--all"], "unknown argument b"),
        (["top", "a", "--watch", "b"], "unknown argument b"),
    ],
)
def test_wrong_words_are_usage_errors(words: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*words)
    assert says in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    "words",
    [
        ["--epochs", "3"],
        ["--lr=0.1"],
        ["--seed", "1"],
        ["--resume"],
        ["--log-dir", "x"],
        ["--data", "x"],
        ["--num-workers", "4"],
        ["3"],
    ],
)
def test_an_argument_of_the_program_is_no_slip_in_an_option(words: list[str]) -> None:
    with pytest.raises(UsageError, match=f"unknown argument {words[0].partition('=')[0]}") as one:
        parse("run", "train.py", *words)
    assert "follow --: `ciao run train.py -- --epochs 3`" in one.value.hint
    assert "Did you mean" not in one.value.hint


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("stop", "delete"),
        ("kill", "delete"),
        ("cancel", "delete"),
        ("rm", "delete"),
        ("status", "describe"),
        ("ls", "jobs"),
        ("ps", "jobs"),
        ("list", "jobs"),
        ("get", "jobs"),
        ("detach", "run --detach"),
    ],
)
def test_the_verbs_of_other_programs_are_understood(word: str, verb: str) -> None:
    with pytest.raises(UsageError, match=f"no verb {word}") as caught:
        parse(word)
    assert caught.value.hint.startswith(f"Did you mean {verb}? ")


@pytest.mark.parametrize("verb", ["logs", "attach", "top", "stacks", "fetch"])
def test_a_replica_may_stand_behind_the_name(verb: str) -> None:
    args = parse(verb, "mnist/worker-0", "--replica", "ps")
    shared_arguments.take_replica(args)
    assert (args.name, args.replica) == ("mnist", ["ps", "worker-0"])
    args = parse(verb, "mnist")
    shared_arguments.take_replica(args)
    assert (args.name, args.replica) == ("mnist", [])


def test_words_of_the_log_and_of_warm_in_a_terminal() -> None:
    caller: Any = SimpleNamespace(session=SimpleNamespace(warm=None))
    with pytest.raises(UsageError, match="--lines cannot be -3"):
        asyncio.run(log.run(parse("log", "--lines", "-3"), caller))
    with pytest.raises(UsageError) as caught:
        asyncio.run(warm.run(parse("warm"), caller))
    assert "%ciao warm" in for_terminal(caught.value.hint)


@pytest.mark.parametrize(
    ("words", "dest", "value"),
    [
        (["fetch", "odd", "--replica", "worker-0", "model/", "a"], "path", ["model/", "a"]),
        (
            ["fetch", "odd", "x", "--run", "2", "model/", "-n", "t", "a"],
            "path",
            ["x", "model/", "a"],
        ),
        (["fetch", "--run", "2", "odd"], "path", []),
        (["delete", "x1", "--yes", "x1-2"], "names", ["x1", "x1-2"]),
        (["delete", "--yes", "x1"], "names", ["x1"]),
        (["config", "lines=7", "-o", "json", "color=never"], "changes", ["lines=7", "color=never"]),
    ],
)
def test_words_may_be_on_both_sides_of_an_option(
    words: list[str], dest: str, value: list[str]
) -> None:
    assert getattr(parse(*words), dest) == value
    assert getattr(parse(*words), dest) == value  # nothing was added to a default


@pytest.mark.parametrize(
    ("words", "value"),
    [([], None), (["--dryrun"], "true"), (["--dryrun=server"], "server")],
)
def test_a_flag_with_a_word_takes_no_file(words: list[str], value: str | None) -> None:
    args = parse("run", *words, "f.py")
    assert args.file == "f.py"
    assert run._options(args, Registry().table).get("dryrun") == ([value] if value else None)


def test_what_stands_behind_two_dashes_is_the_command() -> None:
    args = parse("exec", "-it", "a/worker-0", "-n", "x", "--", "sh", "-c", "ls -- *", "--", "-t")
    assert args.behind == ["sh", "-c", "ls -- *", "--", "-t"]
    assert (args.name, args.stdin, args.tty, args.namespace) == ("a/worker-0", True, True, "x")


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["jobs"], Where()),
        (["jobs", "-A"], Where(everywhere=True)),
        (["jobs", "-A", "--context", "c"], Where("c", "", True)),
        (["describe", "a", "-n", "team-b"], Where("", "team-b")),
        (["logs", "a", "--namespace=team-b", "--context=c"], Where("c", "team-b")),
    ],
)
def test_where_jobs_are_looked_for(words: list[str], where: Where) -> None:
    assert shared_arguments.where(parse(*words)) == where


def test_one_namespace_and_all_of_them_do_not_go_together() -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        shared_arguments.where(parse("jobs", "-A", "-n", "x"))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("10m", 600), ("2h30m", 9000), ("1d", 86400)]
)
def test_a_time_span_is_counted_back_from_now(text: str, seconds: int) -> None:
    assert time.time() - shared_arguments.moment(text) == pytest.approx(seconds, abs=5)


def test_a_moment_is_taken_as_it_is() -> None:
    assert shared_arguments.moment("2026-01-31T18:00:00Z") == shared_arguments.moment(
        "2026-01-31T19:00:00+01:00"
    )
    assert shared_arguments.moment("2026-01-31T18:00:00.5+00:00") == 1769882400.5
    local = datetime(2026, 1, 31, 18, 0).timestamp()
    assert shared_arguments.moment("2026-01-31T18:00") == local
    assert shared_arguments.moment("") == 0


@pytest.mark.parametrize("text", ["soon", "5x", "-5m", "2026-13-01", "0", "99999999999999999"])
def test_what_is_no_time_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--since cannot be"):
        shared_arguments.moment(text)


@pytest.mark.parametrize(
    "words",
    [
        ["-f", "--previous"],
        ["-f", "--timestamps"],
        ["-f", "--since", "5m", "--tail", "3"],
        ["--tail", "-1"],
        ["--since", "soon"],
    ],
)
def test_options_of_logs_that_do_not_go_together(words: list[str]) -> None:
    with pytest.raises(UsageError):
        logs._checked(parse("logs", "a", *words))


@pytest.mark.parametrize(
    ("data", "number", "kept"),
    [
        (b"", 3, b""),
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\n", 5, b"a\nb\n"),
        (b"a\nb\n", 0, b""),
        (b"a\r1\r2\nb\x0bc\n", 1, b"b\x0bc\n"),
        (b"a\r1\r2\n", 1, b"a\r1\r2\n"),
        (b"\n\n\n", 2, b"\n\n"),
    ],
)
def test_the_last_lines(data: bytes, number: int, kept: bytes) -> None:
    assert last_lines(data, number) == kept


def test_words_that_name_a_job_work_when_pasted() -> None:
    job = Job("mnist", "kubernetes", "tensorflow", (), 0.0, "team-b")
    assert job.reference == "mnist"
    job = replace(job, options="--namespace team-b --context 'a b'")
    words = shlex.split(f"attach {job.reference}")
    assert shared_arguments.where(parse(*words)) == Where("a b", "team-b")


# --------------------------------------------------------------------------- completion


def test_values_are_those_of_a_header() -> None:
    args = parse("run", "f.py", "--framework", "pytorch", "--worker", "1")
    given = functools.partial(run._options, table=Registry().table)
    assert completion.value("framework", given)("ten", args) == ["tensorflow"]
    offers = completion.value("follow", given)("", args)
    assert set(offers) >= {"worker", "worker-0"}
    assert "ps" not in offers


@pytest.mark.parametrize(
    ("prefix", "offers"), [("", ["kubernetes", "local"]), ("l", ["local"]), ("x", [])]
)
def test_backends_are_offered(prefix: str, offers: list[str]) -> None:
    assert sorted(completion.backends(prefix)) == offers
    for verb in ("jobs", "logs"):
        text = commands.parser(verb=verb)._subparsers._group_actions[0].choices[verb]  # type: ignore
        (action,) = [one for one in text._actions if "--backend" in one.option_strings]
        assert action.completer is completion.backends


# ----------------------------------------------------------------------- the user's file


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'color = "x"\n'),
        ("# only this", '# only this\ncolor = "x"\n'),
        ("color='a'", 'color="x"'),
        ('  "COLOR"   =   "a"   # b\n', '  "COLOR"   =   "x"   # b\n'),
        ('linger = 1\n\n[t]\ncolor = "a"\n', 'linger = 1\n\ncolor = "x"\n[t]\ncolor = "a"\n'),
        ('a = "color = 1"\n', 'a = "color = 1"\ncolor = "x"\n'),
        ("# color = 1\n", '# color = 1\ncolor = "x"\n'),
        ('color = "a\\"b#c"\r\n', 'color = "x"\r\n'),
        ("color = 5#c\n", 'color = "x"#c\n'),
    ],
)
def test_one_line_changes_and_all_others_stay(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "new folder" / "config.toml"
    file.parent.mkdir()
    file.write_bytes(before.encode())
    settings_file.save(file, {"color": "x"})
    assert file.read_bytes().decode() == after


@pytest.mark.parametrize(
    "text",
    [
        "[color]\n",
        "[[color]]\n",
        "a = '''\ncolor=1\n'''\n[b\n",
    ],
)
def test_what_is_not_understood_is_not_written(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(SettingError):
        settings_file.save(file, {"color": "x"})
    assert file.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_two_that_save_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    together = threading.Barrier(8)

    def save(number: int) -> None:
        together.wait(60)
        settings_file.save(file, {f"key{number}": number})

    for _ in range(5):
        file.unlink(missing_ok=True)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(save, range(8)))
        assert tomllib.loads(file.read_text()) == {f"key{n}": n for n in range(8)}


@pytest.mark.parametrize("value", ['"', "\\", "\x7f", "\t\x01", "ü 😀", "# x", "'''", 2.5, 3])
def test_values_are_read_back_as_they_were(tmp_path: Path, value: str | float) -> None:
    file = tmp_path / "config.toml"
    for _ in range(2):
        settings_file.save(file, {"key": value, "other": "y"})
        assert tomllib.loads(file.read_text()) == {"key": value, "other": "y"}


# ------------------------------------------------------------------------ what is written


def test_an_error_cannot_command_a_terminal() -> None:
    evil = "boom \x1b[2J\x1b]0;title\x07\x1b[31mred\u202e"
    error = JobFailed(f"worker-0 ended: {evil}", traceback=("Traceback", evil))
    assert uncolored(error) == [
        "Traceback",
        r"boom red\u202e",
        "",
        r"JobFailed: worker-0 ended: boom \x1b[2J\x1b]0;title\x07\x1b[31mred\u202e",
    ]
    assert all("\x1b[2J" not in line for line in colored(error))
    found = ciao_error(error, color=True)
    assert not [c for c in found["evalue"] if not c.isprintable()]


EVIL = "a\x1b]0;pwned\x07\x1b[2J\x1b[31mb\x9b2J\x07\u202e"
"""Sets a window's title, clears it, colours, clears it again, rings, and reverses the rest."""
SEEN = r"a\x1b]0;pwned\x07\x1b[2J\x1b[31mb\x9b2J\x07\u202e"


def evil_job() -> tuple[Job, Status]:
    """A job whose every text was made by somebody who wants our terminal."""
    header = f"#%worker=1 {EVIL}\n\n#%name={EVIL}\x1b]0;\n#%plot={EVIL}"
    job = Job(
        "mnist",
        "kubernetes",
        EVIL,
        (WORKER,),
        0.0,
        EVIL,
        header=header,
        owner=f"{EVIL}\nroot",
        kind_of_place="namespace",
    )
    one = ReplicaStatus(WORKER, State.FAILED, reason=EVIL, node=EVIL, log=EVIL)
    return job, Status(State.FAILED, (one,), reason=EVIL, message=f"{EVIL}\n{EVIL}")


def test_a_job_cannot_command_the_terminal_of_who_describes_it() -> None:
    job, status = evil_job()
    details = Details(
        facts=(("image", EVIL),), pods={WORKER: EVIL}, missing=EVIL,
        cluster_events=(ClusterEvent(EVIL, EVIL, EVIL, EVIL, 0.0),),
    )  # fmt: skip
    blocks = list(describe._blocks(job, status, details))
    text = "".join(blocks)
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    facts = [line.split(maxsplit=1) for line in blocks[0].splitlines()]
    assert ["state", f"Failed ({SEEN} {SEEN} {SEEN})"] in facts
    assert ["framework", SEEN] in facts
    assert ["owner", f"{SEEN} root"] in facts
    assert ["image", SEEN] in facts
    assert blocks[1].splitlines() == [
        *("header", f"  #%worker=1 {SEEN}", "  ", rf"  #%name={SEEN}\x1b]0;", f"  #%plot={SEEN}"),
    ]


def test_the_word_for_a_wait_is_not_said_twice() -> None:
    waits = Status(State.PENDING, (), reason="Queued", message="waits in queue team, 2nd in line")
    assert describe._state(waits) == "Queued (waits in queue team, 2nd in line)"
    failed = Status(State.FAILED, (), reason="BackoffLimitExceeded", message="too many")
    assert describe._state(failed) == "Failed (BackoffLimitExceeded too many)"


def test_a_job_cannot_command_the_terminal_of_who_lists_it() -> None:
    text = jobs._table([evil_job()], spaces=True)
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    assert len(text.splitlines()) == 2  # a line feed would forge a job
    assert text.splitlines()[1].endswith(f"{SEEN} root")
    assert f" {SEEN}  " in text


@pytest.mark.parametrize("color", ["always", "never"])
@pytest.mark.parametrize("window", [True, False])
def test_a_job_cannot_command_the_terminal_of_who_follows_it(
    window: bool, color: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job, status = evil_job()

    class Window(io.StringIO):
        def isatty(self) -> bool:
            return window

    async def main(stream: TextIO) -> None:
        display = TerminalDisplay(Settings(color=color), stream)
        display.begin(job, ())
        display.show(Notice(f"[build] {EVIL}\n[build] `%ciao jobs`\t{EVIL}"))
        display.show(status)
        await display.end()
        display.close()

    asyncio.run(main(stream := Window()))
    text = stream.getvalue() + capsys.readouterr().err
    assert f"[build] {SEEN}\n[build] `ciao jobs`\t{SEEN}\n" in text
    assert "\x1b]" not in text
    assert not set(text) & {"\x07", "\x9b", "\u202e"}
    assert "\x1b[2J" not in text
    assert ("\x1b" in text) is window  # the live table is drawn in place
    assert f"namespace: {SEEN}\n" in text


def test_a_caret_stays_under_what_it_points_at() -> None:
    error = DirectiveError("wrong.", line=2, column=3, width=2, text="#%wroker")
    assert uncolored(error)[:2] == ["line 2: #%wroker", "           ^^"]


def test_commands_are_named_as_they_are_typed() -> None:
    assert for_terminal("`%ciao jobs` and %ciao") == "`ciao jobs` and %ciao"


def test_the_users_own_lines_stay_as_they_are_in_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "# %namespace=Team"
    error = DirectiveError("no.", "Write %namespace=team.", line=1, column=13, width=4, text=line)
    show_error(error, Settings(color="never"))
    assert capsys.readouterr().err.splitlines() == [
        f"line 1: {line}",
        f"{' ' * 21}^^^^",
        "DirectiveError: no.",
        "Write --namespace team.",
    ]


def test_a_dry_run_says_commands_as_they_are_typed_and_shows_the_program_as_it_is() -> None:
    said: list[str] = []
    text = "print('`%ciao jobs`')"
    session = SimpleNamespace(preview=None)
    caller: Any = SimpleNamespace(write=said.append, session=session, terminal=True)
    writer = run._NoticeWriter(caller)
    writer.show(Notice("`%ciao jobs` lists them."))
    session.preview = SimpleNamespace(text=text)
    writer.show(Notice(text))
    assert said == ["`ciao jobs` lists them.\n", f"{text}\n"]
    caller.terminal = False
    writer.show(Notice("`%ciao jobs` lists them."))
    assert said[2:] == ["`%ciao jobs` lists them.\n"]


class Recorder:
    def __init__(self) -> None:
        self.data = b""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None: ...

    def show(self, event: Event) -> None:
        assert isinstance(event, Output)
        assert event.lines == event.data.count(b"\n")
        self.data += event.data

    async def end(self) -> None: ...


def show(stream: TextIO) -> None:
    """Show a job of two lines, which ends before anything is drawn a second time."""

    async def main() -> None:
        display = TerminalDisplay(Settings(), stream)
        job = Job("mnist", "local", "tensorflow", (WORKER,), 0.0, "/jobs/mnist/work")
        display.show(Notice("`%ciao jobs` lists it"))
        display.begin(job, ())
        for line in (b"first\n", b"last\n"):
            display.show(Output(WORKER, line, 1))
        display.show(Status(State.SUCCEEDED, (ReplicaStatus(WORKER, State.SUCCEEDED),)))
        await display.end()
        display.close()

    asyncio.run(main())


def test_a_terminal_gets_the_lines_of_the_last_moment() -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream:
        show(stream)
        text = ""
        while "folder: " not in text or not text.endswith("\n"):  # a read may give a part
            text += os.read(master, 1 << 16).decode()
    os.close(master)
    assert text.index("`ciao jobs`") < text.index("first") < text.index("last")
    assert text.index("last\r\n") < text.index("mnist: Succeeded")
    assert text.endswith("folder: /jobs/mnist/work\r\n")


def test_a_terminal_shows_all_lines_unless_the_header_limits_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main(stream: TextIO, lines: int | None) -> None:
        display = TerminalDisplay(Settings(lines=1), stream)
        job = Job("mnist", "local", "tensorflow", (WORKER,), 0.0, "/jobs/mnist/work", lines=lines)
        display.begin(job, ())
        for number in range(5):
            display.show(Output(WORKER, b"line %d\n" % number, 1))
        await display.end()

    every = [f"[worker-0] line {number}" for number in range(5)]
    asyncio.run(main(stream := io.StringIO(), None))
    assert stream.getvalue().splitlines() == every
    assert "left out" not in capsys.readouterr().err
    asyncio.run(main(stream := io.StringIO(), 2))
    assert stream.getvalue().splitlines() == [*every[:2], *every[-2:]]
    said = "… 1 line of worker-0 is left out here: `ciao logs mnist --replica worker-0` shows it …"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["many", "0", "1e3"])
def test_a_wrong_number_of_lines_is_one_clear_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        line_count(text)
    assert caught.value.message == (
        f"--lines cannot be {text!r}: expected a whole number from 1 to 100000, or all."
    )
    assert line_count("") is None
    assert (line_count("7"), line_count("all")) == (7, ALL_LINES)


def test_a_pipe_gets_the_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    show(stream)
    assert stream.getvalue() == "[worker-0] first\n[worker-0] last\n"
    err = capsys.readouterr().err.splitlines()
    assert err[:2] == ["`ciao jobs` lists it", "mnist: Succeeded"]


@pytest.mark.parametrize("skip", [0, 1, 2, 3, 9, 10])
def test_the_tail_of_a_followed_log_is_exact(skip: int) -> None:
    recorder = Recorder()
    tail = logs._Tail(recorder, {WORKER: skip})
    lines = [f"{i}\n".encode() for i in range(10)]
    for start, end in ((0, 2), (2, 3), (3, 9), (9, 10)):
        tail.show(Output(WORKER, b"".join(lines[start:end]), end - start))
    asyncio.run(tail.end())
    assert recorder.data == b"".join(lines[skip:])


@pytest.mark.parametrize(("skip", "shown"), [(1, b"2\n3"), (2, b"3"), (3, b""), (4, b"")])
def test_the_tail_of_a_followed_log_may_end_without_a_line_feed(skip: int, shown: bytes) -> None:
    events: list[Any] = []
    display: Any = SimpleNamespace(show=events.append)
    tail = logs._Tail(display, {WORKER: skip})
    tail.show(Output(WORKER, b"", 0, b"unfinis"))
    tail.show(Output(WORKER, b"1\n2\n3", 3))
    assert events == [Output(WORKER, b"", 0, b"unfinis"), Output(WORKER, shown, max(0, 3 - skip))]


class Logs:
    """As much of a backend as the tail of a log asks for."""

    def __init__(self, now: bytes, before: bytes | None, own: bytes | None) -> None:
        self.now, self.before, self.own = now, before, own

    async def log(self, job: Job, replica: Replica, options: LogOptions = WHOLE_LOG) -> bytes:
        if not options.previous:
            if self.own is None and options.timestamps:
                raise BackendError("no line has a time.")
            return self.own if options.timestamps else self.now
        if self.before is None:
            raise BackendError("it was not started a second time.")
        return self.before


@pytest.mark.parametrize(
    ("now", "before", "tail", "older"),
    [
        (b"1\n2\n3\n", None, 2, 1),
        (b"1\n2\n3\n", b"a\nb\n", 2, 3),
        # The log on this machine, which completes the node's, has all runs.
        (b"0\n1\n2\n3\n4\n", b"1\n2\n", 1, 4),
        (b"1\n2\n3", None, 2, 1),
        (b"1\n2\n3", None, 0, 2),
        (b"", b"a\nb\n", 1, 1),
        (b"", b"a\nb", 2, 0),
        (b"", b"a\nb", 1, 1),
        (b"", None, 5, 0),
    ],
)
def test_a_followed_tail_leaves_out_what_an_earlier_run_wrote(
    now: bytes, before: bytes | None, tail: int, older: int
) -> None:
    """An unfinished line is never left out: the rest of it would go too."""
    own = now.removeprefix(b"0\n1\n2\n")
    backend: Any = Logs(now, before, own)
    job = Job("mnist", "kubernetes", "tensorflow", (WORKER,), 1.0)
    assert asyncio.run(logs._old(backend, job, [WORKER], tail)) == {WORKER: older}


def test_a_followed_tail_takes_the_log_as_it_is_where_no_line_has_a_time() -> None:
    backend: Any = Logs(b"1\n2\n", b"1\n", None)
    job = Job("mnist", "kubernetes", "tensorflow", (WORKER,), 1.0)
    assert asyncio.run(logs._old(backend, job, [WORKER], 1)) == {WORKER: 1}


@pytest.mark.parametrize("words", [["?"], ["??"], ["?", "?"]])
def test_a_question_mark_alone_is_help(words: list[str]) -> None:
    said: list[str] = []
    assert commands.parse(words, said.append, "%ciao") is None
    assert "".join(said).startswith("usage: %ciao ")


@pytest.mark.parametrize("words", [["stacks?"], ["stacks", "?"], ["stacks??"]])
def test_a_question_mark_in_a_notebook_explains_the_verb(words: list[str]) -> None:
    said: list[str] = []
    assert commands.parse(words, said.append, "%ciao") is None
    assert "usage: %ciao stacks" in "".join(said)
    with pytest.raises(UsageError):
        commands.parse(["stacks?"], said.append, "ciao")
