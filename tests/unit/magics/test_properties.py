"""What holds for every text, and for every spec."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.errors import UsageError
from ciao_kernel.magics import body, header, numeric_types, parse, spec_reader
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.help.completeness import answer
from ciao_kernel.magics.help.completion import complete
from ciao_kernel.magics.help.directive_help import explain
from ciao_kernel.magics.render import render
from ciao_kernel.magics.scanned_cell import scan, scan_job
from ciao_kernel.model import (
    ALL_LINES,
    ApiName,
    BuildSpec,
    Checkpoint,
    CleanPolicy,
    ClusterSpec,
    DryRun,
    Gpu,
    JobSpec,
    ReplicaGroup,
    Resources,
    RestartPolicy,
    Runner,
    SuccessPolicy,
    Volume,
    VolumeKind,
)
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
FEW = settings(max_examples=150, derandomize=True, deadline=None)

# ------------------------------------------------------------------------------------ texts

PIECES = [
    *("%framework=pytorch", "%framework=tensorflow", "%worker=2", "%ps=1", "%cpu=1", "%wroker=1"),
    *("%follow=worker-0", "%files='a b'", "%detach", "%envvar=A=1", "%python=x", "%gpu=a/b:1"),
    *("%", "%%", "%%ciao", "%%bash", "%cd", "#%", "# %", "#", "!", "!ls", "?", ";%", ";", "="),
    *("\n", "\n", "\n", "\r\n", "\r", " ", "\t", "\f", "\x0b", "\u2028", "\x85", "\xa0", "\ufeff"),
    *("'", '"', '"""', "'''", "f'", 'f"""', "{", "}", "(", ")", "[", "]", ":", "\\", "\\\n"),
    *("x = 1", "import os", "if x:", "    ", "def f():", "coding: latin-1", "-0", "9" * 30),
    *("\0", "\ud800", "é", "你", "🚀", "٣", "²"),
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=15).map("".join),
)
STYLES = st.sampled_from(list(Style))


@given(TEXTS, STYLES)
@FEW
def test_no_text_crashes_anything(text: str, style: Style) -> None:
    job = scan_job(text, TABLE, style)
    assert isinstance(answer(scan(text, TABLE), TABLE), str | dict)
    try:
        parsed = parse.parse(text, TABLE, style=style)
    except UsageError:
        return
    assert job
    check_delivery(text, parsed, style)


@given(TEXTS, STYLES, st.booleans())
@FEW
def test_delivery_of_any_text(text: str, style: Style, syntax: bool) -> None:
    # With less that can be wrong more texts come through.
    try:
        parsed = parse.parse(
            text, TABLE, style=style, default_framework="tensorflow", check_syntax=syntax
        )
    except UsageError:
        return
    check_delivery(text, parsed, style)


def check_delivery(text: str, parsed: parse.Parsed, style: Style) -> None:
    before, after = list(header.lines(text)), list(header.lines(parsed.code))
    assert len(before) == len(after)
    taken = {token.line.number for token in parsed.tokens}
    for old, new in zip(before, after, strict=True):
        assert (old.number, old.end) == (new.number, new.end)
        first = not text[: old.start].strip("\ufeff \t\f\r\n")
        magic = first and header.is_cell_magic(text) and "%%ciao" in old.text
        if style is Style.FILE or (old.number not in taken and not magic):
            assert new.text == old.text
        else:
            place = next(i for i, c in enumerate(new.text) if old.text[i : i + 1] != c)
            assert new.text == old.text[:place] + "#" + old.text[place:]
            assert not old.text[:place].strip().strip("\ufeff")
    for token in parsed.tokens:
        assert before[token.line.number - 1] == token.line


@given(TEXTS, st.integers(-2, 200), STYLES)
@FEW
def test_completing_and_explaining_anywhere(text: str, cursor: int, style: Style) -> None:
    found = complete(text, cursor, TABLE, Path("/nowhere"), style)
    if found is not None:
        assert 0 <= found.start <= max(0, min(cursor, len(text))) <= found.end <= len(text)
        assert "\n" not in text[found.start : found.end]
        assert all(match and match.isprintable() for match in found.matches)
    assert explain(text, cursor, TABLE, style) != ""


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
@FEW
def test_a_program_that_python_can_read_is_never_touched(program: str) -> None:
    text = "x = 1\n" + program
    if body.syntax_error(text) is not None:
        return
    assert not scan_job(text, TABLE)
    head = "%framework=tensorflow\n\n"  # Below the second line no comment is a coding line.
    assert parse.parse(head + text, TABLE).code == "#" + head + text


# ------------------------------------------------------------------------------------ specs

LINE = st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0")
WORDS = st.lists(st.text(LINE, max_size=12), max_size=3).map(tuple)
KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
SECONDS = st.integers(1, numeric_types.MAX_SECONDS)


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


RESOURCES = st.builds(
    Resources,
    cpu=maybe(st.sampled_from(["1", "0.5", "500m", "64", ".5", "2."])),
    memory=maybe(st.sampled_from(["4Gi", "512Mi", "1e9", "1.5G", "2097152", "1E"])),
    gpu=maybe(
        st.builds(Gpu, st.integers(0, numeric_types.MAX_GPUS))
        | st.builds(Gpu, st.integers(0, 8), st.sampled_from(["amd.com/gpu", "a.b-c.d/E_f.g"]))
    ),
)
VOLUMES = st.lists(
    st.sampled_from(
        [
            Volume(VolumeKind.CLAIM, "a", "data"),
            Volume(VolumeKind.CLAIM, "b/c", "data", "x/y z", read_only=True),
            Volume(VolumeKind.NFS, "/d", "files.example", "/export"),
            Volume(VolumeKind.HOST, "h", path="/mnt/data", read_only=True),
            Volume(VolumeKind.TMP, "e"),
            Volume(VolumeKind.TMP, "f", size="10Gi"),
            Volume(VolumeKind.MEMORY, "g", size="2Gi"),
        ]
    ),
    unique=True,
    max_size=3,
).map(tuple)
ROLE_VOLUMES = st.lists(
    st.sampled_from(
        [
            Volume(VolumeKind.CLAIM, "own/a", "data", "it's ;%x", read_only=True),
            Volume(VolumeKind.TMP, "own/b", size="1Gi"),
        ]
    ),
    unique=True,
    max_size=2,
).map(tuple)
SWITCHES = ("true", "false", "on", "off", "yes", "no")
OTHERS = {
    "name": maybe(st.from_regex(r"[a-z]([-a-z0-9]{0,43}[a-z0-9])?", fullmatch=True)),
    "env": st.dictionaries(KEYS, st.text(LINE, max_size=12), max_size=3).map(
        lambda pairs: tuple(pairs.items())
    ),
    "args": WORDS,
    "command": WORDS.filter(lambda words: not words or bool(words[0])),
    "files": WORDS,
    "inputs": st.lists(
        st.from_regex(r"[^\W\d]\w{0,9}", fullmatch=True).filter(str.isidentifier), max_size=3
    ).map(tuple),
    "outputs": st.lists(
        st.from_regex(r"[^\W\d]\w{0,9}", fullmatch=True).filter(str.isidentifier),
        max_size=3,
        unique=True,
    )
    .filter(lambda names: len(names) != 1 or names[0].lower() not in SWITCHES)
    .map(tuple),
    "volumes": VOLUMES,
    "checkpoint": maybe(
        st.sampled_from([Checkpoint(), Checkpoint("data"), Checkpoint("data", "x/y")])
    ),
    "grace": maybe(SECONDS),
    "inspect": maybe(st.sampled_from(["on", "off"])),
    "usage": maybe(st.sampled_from(["on", "off"])),
    "on_error": maybe(st.integers(1, 7 * 24 * 3600)),
    "retries": maybe(st.integers(1, 100)),
    "serve": st.lists(st.sampled_from(["ps", "worker"]), max_size=2, unique=True).map(tuple),
    "runner": maybe(st.sampled_from(Runner)),
    "nproc_per_node": maybe(st.integers(1, 128)),
    "slots": maybe(st.integers(1, 128)),
    "min_workers": maybe(st.integers(1, 1000)),
    "max_workers": maybe(st.integers(1, 1000)),
    "python": maybe(st.text(LINE, min_size=1, max_size=12)),
    "backend": maybe(st.sampled_from(["auto", *TABLE.names.backends])),
    "builder": maybe(st.sampled_from(["auto", *TABLE.names.builders])),
    "clean_policy": maybe(st.sampled_from(CleanPolicy)),
    "deadline": maybe(SECONDS),
    "detach": st.booleans(),
    "warm": maybe(SECONDS),
    "tensorboard": maybe(st.sampled_from(["logs", "runs/one", "a b", "it's"])),
    "lines": maybe(st.integers(1, 100_000) | st.just(ALL_LINES)),
    "plot": st.lists(
        st.from_regex(r"[A-Za-z][\w/@. -]{0,20}[a-z0-9]", fullmatch=True), max_size=3
    ).map(tuple),
    "dryrun": st.sampled_from(DryRun),
}
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"([a-z]{1,9}\.io/)?[A-Za-z]([-A-Za-z0-9_.]{0,9}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,9}[a-z0-9])?|", fullmatch=True),
    max_size=3,
).map(lambda pairs: tuple(pairs.items()))
IMAGES = st.from_regex(
    r"([a-z]{1,9}\.example(:[0-9]{4})?/)?[a-z]{1,9}(/[a-z]{1,9})?(:[a-z0-9][a-z0-9.]{0,9})?"
    r"(@sha256:[0-9a-f]{64})?",
    fullmatch=True,
)
REPOSITORIES = IMAGES.map(lambda image: re.sub(r":[^/]*$|@.*", "", image))
CLUSTER = {
    "context": maybe(st.text(LINE, min_size=1, max_size=12)),
    "namespace": maybe(NAMES),
    "image": maybe(IMAGES),
    "env_secrets": st.lists(NAMES, max_size=3).map(tuple),
    "service_account": maybe(NAMES),
    "pull_secrets": st.lists(NAMES, max_size=3).map(tuple),
    "node_selector": LABELS,
    "tolerations": st.lists(
        st.from_regex(r"[a-z]{1,9}(=[a-z]{0,9})?(:NoSchedule|:NoExecute)?", fullmatch=True),
        max_size=3,
    ).map(tuple),
    "priority_class": maybe(NAMES),
    "labels": LABELS,
    "annotations": st.dictionaries(NAMES, st.text(LINE, max_size=12), max_size=3).map(
        lambda pairs: tuple(pairs.items())
    ),
    "restart_policy": maybe(st.sampled_from(RestartPolicy)),
    "backoff_limit": maybe(st.integers(0, 1000)),
    "ttl": maybe(SECONDS),
    "queue": maybe(NAMES),
    "queue_priority": maybe(NAMES),
    "pod_patch": maybe(NAMES),
    "success_policy": maybe(st.sampled_from(SuccessPolicy)),
    "api": maybe(st.sampled_from(ApiName)),
}
BUILD = {
    "base": maybe(IMAGES),
    "registry": maybe(REPOSITORIES),
    "packages": st.lists(st.text(LINE, min_size=1, max_size=12), max_size=3).map(tuple),
    "requirements": maybe(st.text(LINE, min_size=1, max_size=12)),
    "apt": st.lists(
        st.from_regex(r"[a-z][a-z0-9+.-]{1,9}(=[0-9]:[0-9.~-]{1,9})?", fullmatch=True), max_size=3
    ).map(tuple),
    "conda_env": maybe(st.text(LINE, min_size=1, max_size=12)),
    "dockerfile": maybe(st.text(LINE, min_size=1, max_size=12)),
    "s2i_builder": maybe(IMAGES),
    "push_secret": maybe(NAMES),
    "pip_secret": maybe(NAMES),
    "pip_index": maybe(st.from_regex(r"https://[a-z0-9.:/?&=%-]{1,12}", fullmatch=True)),
}


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    framework = draw(st.sampled_from(list(TABLE.names.frameworks)))
    roles = TABLE.roles(framework)
    said = draw(st.sets(st.sampled_from(roles)))
    counts = st.integers(0, numeric_types.MAX_COUNT)
    groups = tuple(
        ReplicaGroup(role, draw(counts), draw(RESOURCES), draw(ROLE_VOLUMES))
        for role in roles
        if role in said
    )
    followed = [*roles, *(f"{group.role}-{group.count - 1}" for group in groups if group.count)]
    return JobSpec(
        framework,
        groups,
        draw(RESOURCES),
        follow=draw(st.lists(st.sampled_from(followed), max_size=3).map(tuple)),
        **{field: draw(strategy) for field, strategy in OTHERS.items()},
        cluster=ClusterSpec(**{field: draw(strategy) for field, strategy in CLUSTER.items()}),
        build=BuildSpec(**{field: draw(strategy) for field, strategy in BUILD.items()}),
    )


def test_the_specs_of_these_tests_have_every_field() -> None:
    known = {"framework", "groups", "resources", "follow", "cluster", "build", *OTHERS}
    assert {field.name for field in fields(JobSpec)} == known
    assert {field.name for field in fields(ClusterSpec)} == {*CLUSTER}
    assert {field.name for field in fields(BuildSpec)} == {*BUILD}


def test_every_field_has_its_directive() -> None:
    written = {"framework", "cpu", "memory", "gpu", "follow", *OTHERS}
    written |= {f"cluster.{field}" for field in CLUSTER}
    written |= {f"build.{field}" for field in BUILD}
    roles = {role for roles in TABLE.names.frameworks.values() for role in roles}
    assert {entry.field for entry in TABLE.entries} == written | roles


@given(specs(), STYLES)
@FEW
def test_a_rendered_spec_is_read_as_it_was(spec: JobSpec, style: Style) -> None:
    text = render(spec, TABLE, style) + "x = 1\n"
    assert scan_job(text, TABLE, style)
    parsed = parse.parse(text, TABLE, style=style)
    assert parsed.spec == spec
    compile(parsed.code, "cell", "exec")
    if spec.framework in TABLE.names.any_language:
        # A cell's header is delivered as empty lines.
        assert style is Style.FILE or parsed.code.strip() == "x = 1"
    elif style is Style.CELL:
        # What is delivered is the file's form of the same header.
        assert parse.parse(parsed.code, TABLE, style=Style.FILE).spec == spec


@given(specs(), st.sampled_from(["\n", "\r\n", "\r"]), st.text(LINE, max_size=20))
@FEW
def test_line_ends_and_comments_do_not_matter(spec: JobSpec, end: str, comment: str) -> None:
    head = render(spec, TABLE).replace("\n", f" # {comment}{end}# {comment}{end}{end}")
    if "coding" in head:
        return
    parsed = parse.parse(head + "x = 1", TABLE)
    assert parsed.spec == spec
    assert parsed.code.endswith(f"{end}x = 1")


def test_a_word_with_a_line_end_cannot_be_written() -> None:
    with pytest.raises(UsageError, match="one line of text"):
        spec_reader.read(parse.option_tokens({"args": ["'a\nb'"]}), TABLE, "tensorflow")
