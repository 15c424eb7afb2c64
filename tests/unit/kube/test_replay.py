"""Answers that break off anywhere are joined: no line is lost, none comes twice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from ciao_kernel.kube import replay as replay_module
from ciao_kernel.kube.replay import Mismatch, Mode, Replay
from ciao_kernel.kube.resume_position import Gap, Lines, ResumePosition

START = 1_700_000_000_000_000_000
MS = 1_000_000


def stamp(nanoseconds: int) -> bytes:
    moment = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 10**9:09d}Z ".encode()


class Node:
    """A kubelet and its file: records with stamps, of which only the newest file is served."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes]] = []
        self.file = 0  # the first record of the file

    def write(self, nanoseconds: int, *parts: bytes) -> None:
        """Write a line in one or more records, a millisecond apart; the last has the line feed."""
        for number, part in enumerate(parts):
            self.records.append((stamp(nanoseconds + number * MS), part))

    def answer(self, since: str) -> bytes:
        parts, fresh = list[bytes](), True
        for written, text in self.records[self.file :]:
            if written[:19] >= since[:19].encode():
                parts += [written, text] if fresh else [text]
            fresh = text.endswith(b"\n")
        return b"".join(parts)

    def text(self, first: int = 0) -> bytes:
        return b"".join(text for _, text in self.records[first:])


class Reader:
    """What the requests of logs.py do with answers."""

    def __init__(self, node: Node, rng: random.Random) -> None:
        self.node, self.rng = node, rng
        self.progress, self.mode = ResumePosition(), Mode.COUNT
        self.data, self.gaps = b"", list[str]()
        self.searches = 0

    def take(self, found: list[Lines | Gap]) -> None:
        for one in found:
            if isinstance(one, Gap):
                self.gaps.append(one.text)
            else:
                assert one.data.count(b"\n") == one.count > 0
                assert one.data.endswith(b"\n")
                self.data += one.data

    def ask(self, body: bytes | None = None, *, cut: bool = True, last: bool = False) -> bool:
        """Make one request, and tell whether all of the answer was taken."""
        self.searches += self.mode is Mode.SEARCH
        replay = Replay(self.progress, self.mode)
        body = self.node.answer(self.progress.since) if body is None else body
        if cut:
            body = body[: self.rng.randrange(len(body) + 1)]
        mode = self.mode
        try:
            for piece in pieces(body, self.rng):
                self.take(replay.feed(piece))
                if replay.broken:
                    return False
            if not cut:
                self.take(replay.end())
                if replay.broken:
                    return False
            if last:
                self.take(replay.finish())
        except Mismatch:
            again = mode is not Mode.SEARCH or replay.partial_match
            self.mode = Mode.SEARCH if again else Mode.RESTART
            return False
        if replay.begun and replay.joined:
            self.mode = Mode.COUNT
        return not cut

    def complete(self) -> None:
        for _ in range(9):
            if self.ask(cut=False, last=True):
                return
        raise AssertionError("the end is not found")


def pieces(body: bytes, rng: random.Random) -> Iterator[bytes]:
    sizes = rng.choice([(1, 40) if len(body) < 5000 else (1, 400), (1, 9000), (50_000, 90_000)])
    while body:
        size = rng.randint(*sizes)
        yield body[:size]
        body = body[size:]


def fine(rng: random.Random, now: int) -> int:
    return now + rng.randrange(3 * MS)


def coarse(rng: random.Random, now: int) -> int:
    return (now + rng.randrange(3 * MS)) // (15 * MS) * 15 * MS


def disordered(rng: random.Random, now: int) -> int:
    return now - rng.randrange(2 * MS) * (rng.random() < 0.3)


@pytest.mark.parametrize("clock", [fine, coarse, disordered])
@pytest.mark.parametrize("words", [2, 10**9], ids=["alike", "distinct"])
@pytest.mark.parametrize("seed", range(10))
def test_cuts_lose_nothing(
    seed: int, words: int, clock: Callable[[random.Random, int], int]
) -> None:
    rng = random.Random(seed)
    node = Node()
    reader = Reader(node, rng)
    now = START
    for _ in range(40):
        for _ in range(rng.randrange(100)):
            now += rng.choice([0, 1000, MS, 60 * MS])
            text = [b"%d" % rng.randrange(words)]
            if rng.random() < 0.01:
                text = [b"x" * 16384] * rng.randint(1, 3) + text
            node.write(clock(rng, now), *text[:-1], text[-1] + b"\n")
        reader.ask(cut=rng.random() < 0.9)
    reader.complete()
    assert reader.data == node.text()
    assert not reader.gaps
    assert not reader.searches, "to count is enough"


@pytest.mark.parametrize("seed", range(30))
def test_a_rotation_is_either_harmless_or_said(seed: int) -> None:
    rng = random.Random(seed)
    node = Node()
    reader = Reader(node, rng)
    now = START
    for number in range(1500):
        now += rng.choice([MS, 5 * MS, 40 * MS])
        node.write(now, b"%d\n" % number)
        if rng.random() < 0.01:
            reader.ask(cut=False)
            reader.ask()
        if rng.random() < 0.004:
            node.file = rng.randint(node.file, len(node.records))
    reader.complete()
    delivered = [int(line) for line in reader.data.split()]
    assert delivered == sorted(set(delivered)), "a line came twice"
    assert delivered[-1] == 1499 or reader.gaps
    holes = sum(b - a > 1 for a, b in itertools.pairwise(delivered))
    assert len(reader.gaps) >= holes


def test_the_size_of_a_gap_is_told() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    node.write(START, b"a\n")
    reader.ask(cut=False)
    node.write(START + 4_200 * MS, b"b\n")
    node.file = 1
    reader.complete()
    assert reader.data == b"a\nb\n"
    (gap,) = reader.gaps
    assert "22:13:20 UTC" in gap
    assert "4.2 s" in gap


def test_equal_lines_of_which_some_are_in_the_older_file() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    for _ in range(5):
        node.write(START, b"same\n")
    reader.ask(cut=False)
    node.write(START + MS, b"new\n")
    node.file = 3
    reader.complete()
    assert reader.data == node.text()
    assert not reader.gaps


@pytest.mark.parametrize("seed", range(20))
def test_a_line_without_end_comes_in_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "LONGEST", 10_000)
    rng = random.Random(seed)
    node = Node()
    reader = Reader(node, rng)
    now = START
    for _ in range(6):
        now += rng.choice([MS, 700 * MS])
        node.write(now, b"short\n")
        for _ in range(rng.randint(1, 4)):
            now += MS
            node.write(now, rng.randbytes(16384).replace(b"\n", b"."))
            reader.ask(cut=rng.random() < 0.7)
        node.write(now + MS, b"end\n")
        reader.ask()
    reader.complete()
    assert reader.data.replace(b"\n", b"") == node.text().replace(b"\n", b"")
    assert max(map(len, reader.data.split(b"\n"))) <= 10_000
    assert not reader.gaps


def test_bytes_are_left_as_they_are() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    node.write(START, b"\xff\xfe caf\xc3\n")
    node.write(START, b"10%\r20%\r30%\x0b\x85\n")
    node.write(START, b"\n")
    node.write(START, b"no end")
    reader.ask()
    reader.complete()
    assert reader.data == node.text() + b"\n"


def test_an_answer_without_anything_is_complete() -> None:
    replay = Replay(ResumePosition())
    assert [replay.feed(b""), replay.end(), replay.finish()] == [[], [], []]
    assert (replay.begun, replay.broken, replay.words) == (False, False, b"")


def test_an_unfinished_line_is_not_taken_for_a_line() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    node.write(START, b"half")
    replay = Replay(reader.progress)
    reader.take(replay.feed(node.answer("")))
    reader.take(replay.end())
    assert reader.data == b""
    node.write(START + MS, b" whole\n")
    reader.complete()
    assert reader.data == b"half whole\n"


@pytest.mark.parametrize("words", [b"unable to retrieve container logs", b"failed to open it\n"])
def test_the_kubelets_words_are_no_lines(words: bytes) -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    assert not reader.ask(words, cut=False)
    node.write(START, b"one\n")
    assert not reader.ask(node.answer("") + words, cut=False)
    assert not reader.ask(words, cut=False)
    node.write(START + MS, b"two\n")
    reader.complete()
    assert reader.data == b"one\ntwo\n"
    assert not reader.gaps


def test_a_file_that_is_read_again_is_not_delivered_again() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    for number in range(2000):
        node.write(START + number * 10 * MS, b"%d\n" % number)
    body = node.answer("")
    node.file = 1200
    body += node.answer("")  # as a kubelet does that is told of two new files at once
    node.write(START + 20_000 * MS, b"2000\n")
    node.file = 2000
    assert reader.ask(body + node.answer(""), cut=False)
    assert reader.data == node.text()
    (gap,) = reader.gaps
    assert "22:13:32 UTC are lost" in gap
    node.file = 1200
    node.write(START + 20_010 * MS, b"2001\n")
    reader.complete()
    assert reader.data == node.text()
    assert len(reader.gaps) == 1


@pytest.mark.parametrize("step", [50, 900, 3_600_000])
def test_a_clock_that_is_set_back_costs_no_lines(step: int) -> None:
    rng = random.Random(step)
    node = Node()
    reader = Reader(node, rng)
    for number in range(3000):
        node.write(START + number * 10 * MS, b"before %d\n" % number)
    for number in range(3000):
        node.write(START + (30_000 - step + number * 10) * MS, b"after %d\n" % number)
    assert reader.ask(cut=False)
    assert reader.data == node.text()
    node.write(START + (60_000 - step) * MS, b"end\n")
    reader.complete()
    assert reader.data == node.text()
    assert not reader.gaps


def test_lines_held_back_are_let_go() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    node.write(START, b"a\n")
    node.write(START - 100 * MS, b"b\n")
    replay = Replay(reader.progress)
    reader.take(replay.feed(node.answer("")))
    assert replay.holding
    reader.take(replay.release())
    assert not replay.holding
    assert reader.data == b"a\nb\n"


def test_stamps_of_another_zone() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    body = b"2023-11-15T00:13:20.000000001+02:00 one\n2023-11-15T00:13:20.000000002+02:00 two\n"
    assert reader.ask(body, cut=False)
    assert reader.progress.since == "2023-11-14T22:13:19Z"
    assert reader.ask(body + b"2023-11-15T00:13:21.000000002+02:00 three\n", cut=False)
    assert reader.data == b"one\ntwo\nthree\n"


def test_older_lines_than_asked_for_are_left_out() -> None:
    node = Node()
    for number in range(10):
        node.write(START + number * 100 * MS, b"%d\n" % number)
    progress = ResumePosition()
    replay = Replay(progress, since="2023-11-14T23:13:20.5+01:00")
    (found,) = replay.feed(node.answer("2023-11-14T22:13:20Z"))
    assert found == Lines(b"5\n6\n7\n8\n9\n", 5, "2023-11-14T22:13:20.900000000Z")
    node.write(START + 1000 * MS, b"10\n")
    (found,) = Replay(progress, since="2023-11-14T23:13:20.5+01:00").feed(node.answer(""))
    assert isinstance(found, Lines)
    assert found.data == b"10\n"


def line(milliseconds: int, text: bytes) -> bytes:
    return stamp(START + milliseconds * MS) + text + b"\n"


def said(found: list[Lines | Gap]) -> bytes:
    return b"".join(one.data for one in found if isinstance(one, Lines))


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_kubelets_words_are_kept_to_be_told(end: bytes) -> None:
    for words in (b"failed to open it", b"x" * 5000):
        replay = Replay(ResumePosition())
        assert not replay.feed(words + end)
        assert not replay.end()
        assert replay.broken
        assert replay.words == words[:4096]
        assert not replay.finish()


@pytest.mark.parametrize("since", ["", "2023-11-14T22:13:20Z"])
def test_words_behind_lines_cost_none_of_them(since: str) -> None:
    replay = Replay(ResumePosition(), since=since)
    assert said(replay.feed(line(0, b"one") + b"failed to open it\n" + line(1, b"two"))) == b"one\n"
    assert (replay.broken, replay.words) == (True, b"failed to open it")
    replay = Replay(ResumePosition(), since=since)
    replay.feed(line(0, b"one"))
    assert not replay.feed(b"failed to open it\n" + line(1, b"two")[:-1])
    assert replay.broken
    assert not replay.finish()


def test_the_end_of_a_long_line_whose_beginning_is_older_is_no_words() -> None:
    replay = Replay(ResumePosition(), since="2023-11-14T22:13:20Z")
    assert not replay.feed(b"of a long line\n")
    assert not replay.broken
    assert said(replay.feed(line(0, b"one"))) == b"one\n"
    assert not replay.end()
    assert (replay.broken, replay.words) == (False, b"")
    # Where no line follows, it may as well be words.
    replay = Replay(ResumePosition(), since="2023-11-14T22:13:20Z")
    assert not replay.feed(b"failed to open it\n")
    assert not replay.end()
    assert replay.broken


def test_nothing_is_handed_out_of_lines_that_are_all_too_old() -> None:
    replay = Replay(ResumePosition(), since="2023-11-14T22:13:21Z")
    assert replay.feed(line(0, b"old") + line(1, b"old")) == []
    assert said(replay.feed(line(1000, b"new"))) == b"new\n"


def test_a_long_line_that_is_too_old_is_left_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "LONGEST", 10_000)
    replay = Replay(ResumePosition(), since="2023-11-14T22:13:21Z")
    long = line(0, b"x" * 50_000)
    assert not replay.feed(long[:30_000])
    assert not replay.feed(long[30_000:])
    assert said(replay.feed(line(1000, b"new"))) == b"new\n"


def test_pieces_of_a_long_line_have_its_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "LONGEST", 10_000)
    found = Replay(ResumePosition()).feed(line(0, b"x" * 25_000)[:-1])
    assert found == [Lines(b"x" * 10_000 + b"\n", 1, "2023-11-14T22:13:20.000000000Z")] * 2


def test_a_new_file_that_shows_nothing_yet_may_have_cost_lines() -> None:
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a"))
    replay = Replay(progress, Mode.RESTART)
    assert not replay.end()
    (gap,) = replay.finish()
    assert isinstance(gap, Gap)
    assert gap.text == ("Lines after 22:13:20 UTC may be lost: the node rotated its log file.")
    assert not replay.finish(), "it is said once"


def test_what_was_known_before_a_new_file_is_kept() -> None:
    """It may be another container's after all."""
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a"))
    for text in (b"b", b"c"):
        Replay(progress, Mode.RESTART).feed(line(5000, text))
    assert progress.first == line(5000, b"c")[:-1]
    assert progress.before is not None
    assert progress.before.first == line(5000, b"b")[:-1]
    assert progress.before.before is None


def test_a_rotated_file_is_noticed_at_a_new_line_though_it_has_few() -> None:
    """The answer goes on for as long as the container runs, and the next line may come late."""
    progress = ResumePosition()
    old = [stamp(START + n * MS) + b"%d\n" % n for n in range(5)]
    Replay(progress).feed(b"".join(old))
    assert Replay(progress).feed(b"".join(old)) == []  # the same file
    with pytest.raises(Mismatch):
        Replay(progress).feed(stamp(START + 5 * MS) + b"5\n")


def test_a_file_that_is_not_the_same_is_noticed_at_its_first_line() -> None:
    """A connection that follows may bring no second one for hours."""
    progress = ResumePosition()
    Replay(progress).feed(b"".join(line(number, b"old") for number in range(5)))
    with pytest.raises(Mismatch):
        Replay(progress).feed(line(5000, b"new"))


@pytest.mark.parametrize("mode", [Mode.COUNT, Mode.SEARCH])
def test_what_is_unfinished_in_a_file_that_is_not_the_same_is_not_delivered(mode: Mode) -> None:
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a"))
    replay = Replay(progress, mode)
    assert not replay.feed(line(5000, b"b")[:-1])
    assert not replay.finish()


def test_once_the_clock_was_set_back_lines_come_at_once_again() -> None:
    replay = Replay(ResumePosition())
    assert said(replay.feed(line(1000, b"a") + line(0, b"b"))) == b"a\n"
    assert said(replay.release()) == b"b\n"
    assert said(replay.feed(line(1, b"c"))) == b"c\n"
    assert not replay.holding


def test_lines_that_are_held_back_come_in_their_order() -> None:
    replay = Replay(ResumePosition())
    replay.feed(line(1000, b"a") + line(0, b"b"))
    assert said(replay.feed(line(2000, b"c"))) == b"b\nc\n"
    assert not replay.holding


def test_no_more_than_a_megabyte_is_held_back() -> None:
    replay = Replay(ResumePosition())
    replay.feed(line(1000, b"a"))
    half = b"x" * 600_000
    assert not replay.feed(line(0, half))
    assert replay.holding
    assert said(replay.feed(line(1, half))) == (half + b"\n") * 2
    assert not replay.holding


def test_of_the_kubelets_words_the_first_are_told() -> None:
    replay = Replay(ResumePosition())
    replay.feed(b"failed to open it\nand more")
    replay.end()
    assert replay.words == b"failed to open it"


def test_words_in_place_of_lines_do_not_mean_another_file() -> None:
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a"))
    replay = Replay(progress)
    assert not replay.feed(b"failed to open it\n")
    assert not replay.end()
    assert replay.broken


def test_a_long_line_behind_the_end_of_an_older_one_is_no_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_module, "LONGEST", 10)
    replay = Replay(ResumePosition(), since="2023-11-14T22:13:20Z")
    assert not replay.feed(b"of a long line\n")
    assert said(replay.feed(line(0, b"x" * 25)[:-1])) == b"xxxxxxxxxx\n" * 2
    assert not replay.end()
    assert not replay.broken


@pytest.mark.parametrize("mode", [Mode.COUNT, Mode.RESTART])
def test_what_was_delivered_of_a_long_line_is_missing_in_no_other(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The long line may have gone with its file."""
    monkeypatch.setattr(replay_module, "LONGEST", 10)
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a") + line(1, b"x" * 25)[:-1])
    body = line(0, b"a") if mode is Mode.COUNT else b""
    assert said(Replay(progress, mode).feed(body + line(5, b"abc"))) == b"abc\n"
    assert said(Replay(progress).feed(body + line(5, b"abc") + line(6, b"d"))) == b"d\n"


def test_a_search_that_was_cut_off_has_found_nothing_nearly() -> None:
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a"))
    replay = Replay(progress, Mode.SEARCH)
    assert not replay.feed(line(5, b"b"))
    assert not replay.partial_match


def test_fewer_equal_last_lines_than_were_delivered_are_searched_for_again() -> None:
    """A rotation took the first of two equal lines."""
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a") + line(1, b"b") * 2)
    body = line(1, b"b") + line(2, b"c")
    for found in (True, False):
        search = Replay(progress, Mode.SEARCH)
        assert not search.feed(body if found else line(2, b"c"))
        with pytest.raises(Mismatch):
            search.end()
        assert search.partial_match is found
        assert progress.run == 1
    assert said(Replay(progress, Mode.SEARCH).feed(body)) == b"c\n"


def test_only_a_search_matches_in_part() -> None:
    progress = ResumePosition()
    Replay(progress).feed(line(1, b"b") * 2)
    count = Replay(progress)
    assert not count.feed(line(1, b"b"))
    with pytest.raises(Mismatch):
        count.end()
    assert not count.partial_match
    assert progress.run == 2


def test_a_file_that_is_read_again_in_one_piece_is_not_delivered_again() -> None:
    lines = [line(number * 100, b"%d" % number) for number in range(11)]
    first, gap, new = Replay(ResumePosition()).feed(b"".join([*lines[:10], *lines[5:]]))
    assert isinstance(first, Lines)
    assert first.count == 10
    assert isinstance(gap, Gap)
    assert gap.text == ("Lines before 22:13:20 UTC are lost: they came faster than they were read.")
    assert said([new]) == b"10\n"


def test_once_a_line_was_searched_for_to_count_is_enough_again() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    for number in range(8):
        node.write(START + number * 400 * MS, b"%d\n" % number)
    reader.ask(cut=False)
    node.file = 5
    for number in range(8, 10):
        node.write(START + number * 400 * MS, b"%d\n" % number)
        reader.complete()
        assert reader.data == node.text()
        assert reader.searches == 1
    assert not reader.gaps


def test_a_search_whose_answer_comes_in_pieces_counts_all_that_it_skips() -> None:
    """Otherwise the next answer would not continue, and the log would be searched each time."""
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a") + line(1, b"b") + line(2, b"c"))
    search = Replay(progress, Mode.SEARCH)
    assert not search.feed(line(1, b"b"))
    assert said(search.feed(line(2, b"c") + line(3, b"d"))) == b"d\n"
    body = b"".join(line(number, b"%c" % (97 + number)) for number in range(1, 5))
    assert said(Replay(progress).feed(body)) == b"e\n"


def test_of_two_equal_lines_one_is_in_the_older_file() -> None:
    node = Node()
    reader = Reader(node, random.Random(1))
    node.write(START, b"same\n")
    node.write(START, b"same\n")
    reader.ask(cut=False)
    node.write(START + MS, b"new\n")
    node.file = 1
    reader.complete()
    assert reader.data == node.text()
    assert not reader.gaps


def test_the_first_line_of_a_container_stays_its_first() -> None:
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a") + line(3000, b"b"))
    assert said(Replay(progress).feed(line(3000, b"b") + line(4000, b"c"))) == b"c\n"
    assert progress.first == line(0, b"a")[:-1]


def test_very_many_words_are_words_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "LONGEST", 10)
    replay = Replay(ResumePosition())
    assert not replay.feed(b"x" * 9000)
    assert not replay.end()
    assert replay.words == b"x" * 4096


def test_a_new_file_may_begin_with_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "LONGEST", 10)
    progress = ResumePosition()
    Replay(progress).feed(line(0, b"a") + line(1, b"x" * 25)[:-1])
    long = line(5000, b"y" * 25)
    replay = Replay(progress, Mode.RESTART)
    gap, *pieces = replay.feed(long[:-1])
    assert replay.begun
    assert isinstance(gap, Gap)
    assert said(pieces) == b"yyyyyyyyyy\n" * 2
    assert progress.first == long[:-1]
    assert said(Replay(progress).feed(long)) == b"yyyyy\n"
