"""What a profile counts of the stacks that it reads, in the pieces in which they come."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ciao_kernel.delivery.inspection import sampler
from ciao_kernel.delivery.inspection.stack_handler import END, HEAD

STACK = HEAD + '  File "train.py", line 3 in work\n'
ANSWER = STACK + END


@pytest.fixture
def file() -> Iterator[int]:
    made = os.memfd_create("test")
    yield made
    os.close(made)


@pytest.fixture
def process(file: int, monkeypatch: pytest.MonkeyPatch) -> sampler._Process:
    """One whose file the test writes."""
    monkeypatch.setattr(sampler, "find", lambda pid: "/proc/1/fd/9")
    monkeypatch.setattr(sampler, "open_file", lambda path, pid: file)
    found = sampler._Process(1, {})
    found._asked = True
    return found


def counted(process: sampler._Process) -> int:
    return sum(process._stacks.values())


def test_an_answer_ends_a_question(process: sampler._Process, file: int) -> None:
    os.write(file, ANSWER.encode())
    process.take()
    assert (process._asked, counted(process)) == (False, 1)


def test_a_stack_in_c_counts_for_the_question_and_for_now(
    process: sampler._Process, file: int
) -> None:
    os.write(file, STACK.encode())
    process.take()
    process.take()  # nothing more has come: it was no part of an answer
    assert (process._asked, counted(process)) == (True, 2)
    os.write(file, ANSWER.encode())  # of the same moment
    process.take()
    assert (process._asked, counted(process)) == (False, 2)


@pytest.mark.parametrize("cut", [len(HEAD) + 4, len(STACK), len(ANSWER) - 1])
def test_an_answer_in_two_parts_is_one(process: sampler._Process, file: int, cut: int) -> None:
    os.write(file, ANSWER[:cut].encode())
    process.take()
    assert counted(process) == 0
    os.write(file, ANSWER[cut:].encode())
    process.take()
    assert (process._asked, counted(process)) == (False, 1)


def test_an_answer_with_a_stack_behind_it_ends_the_question(
    process: sampler._Process, file: int
) -> None:
    os.write(file, (ANSWER + STACK).encode())
    process.take()
    assert not process._asked


def test_the_last_look_counts_all(process: sampler._Process, file: int) -> None:
    os.write(file, STACK.encode())
    process.take(last=True)
    assert counted(process) == 2
