"""A resume position: what is known of delivered lines, and that it stays small."""

from __future__ import annotations

from ciao_kernel.kube.replay import Replay
from ciao_kernel.kube.resume_position import ResumePosition
from tests.unit.kube.test_replay import MS, START, line, said, stamp


def test_nothing_delivered_is_asked_for_from_the_start() -> None:
    position = ResumePosition()
    assert position.since == ""
    position.note([line(0, b"a")[:-1]])
    assert position.since == "2023-11-14T22:13:19Z"


def test_equal_lines_at_the_end_are_counted_over_all_deliveries() -> None:
    position, runs = ResumePosition(), list[int]()
    first, other = line(0, b"a")[:-1], line(0, b"b")[:-1]
    for lines in ([other, first, first], [first], [first, first], [other, first], [other]):
        position.note(lines)
        runs.append(position.run)
    assert runs == [2, 3, 5, 1, 1]
    assert position.last == other


def test_the_end_of_a_long_line_counts_as_the_line() -> None:
    long, end, after = (stamp(START + n * MS) + text for n, text in enumerate((b"x", b"y", b"z")))
    for lines, last in (([end], long), ([end, after], after)):
        position = ResumePosition(open=long, sent=1000)
        position.note(lines)
        assert position.last == last
        assert (position.open, position.sent, position.run) == (b"", 0, 1)


def test_the_newest_stamp_is_kept_where_two_streams_are_in_disorder() -> None:
    position = ResumePosition()
    for number in (2, 5, 4):
        position.note([line(number, b"a")[:-1]])
    position.note([line(3, b"a")[:-1], line(6, b"b")[:-1], line(5, b"c")[:-1]])
    assert position.high == stamp(START + 6 * MS)[:-1]


def test_the_ends_of_each_delivery_are_known_again() -> None:
    position = ResumePosition()
    lines = [line(number, b"a")[:-1] for number in range(3)]
    position.note(lines)
    assert [hash(one) in position.line_hashes for one in lines] == [True, False, True]


def test_a_position_stays_small_however_long_the_log_is() -> None:
    position = ResumePosition()
    replay = Replay(position)
    for number in range(2000):
        replay.feed(line(number * 1000, b"%d" % number))
    assert len(position.seconds) < 10
    hashes = position.line_hashes
    assert len(hashes) == 1024
    newest = [hash(line(number * 1000, b"%d" % number)[:-1]) for number in range(976, 2000)]
    assert list(hashes) == newest


def test_what_is_forgotten_is_never_what_the_next_answer_repeats() -> None:
    for count in range(1, 30):
        position = ResumePosition()
        replay, lines = Replay(position), [line(n * 1000, b"%d" % n) for n in range(count + 1)]
        for one in lines[:-1]:
            replay.feed(one)
        since = position.since[:19].encode()
        body = b"".join(one for one in lines if one[:19] >= since)
        assert said(Replay(position).feed(body)) == b"%d\n" % count
