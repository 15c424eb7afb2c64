"""Stacks as faulthandler writes them, read for a person."""

from __future__ import annotations

import pytest

from ciao_kernel.delivery.inspection import stack_texts

LIBRARY, STRING = "/usr/lib/python3/dist-packages/train/loop.py", "<string>"
Frames = list[list[object]]


def written(frames: Frames) -> str:
    lines = [f'  File "{path}", line {line} in {name}\n' for path, line, name in frames]
    return "".join(["Stack (most recent call first):\n", *lines])


def call(function: str) -> Frames:
    """The frames of ciao's call."""
    return [[STRING, 31, function], [STRING, 49, "run"], [STRING, 53, "<module>"]]


STEP: Frames = [[LIBRARY, 7, "step"], [LIBRARY, 9, "<module>"]]


@pytest.mark.parametrize("function", ["run_file", "run_module"])
def test_a_stack_begins_with_the_program_and_not_with_its_call(function: str) -> None:
    assert stack_texts.dumped(written(STEP + call(function))) == STEP


def test_a_text_that_a_program_executes_stays() -> None:
    own: Frames = [[STRING, 1, "run_file"], [STRING, 2, "run"], [STRING, 3, "<module>"]]
    inside = own + STEP
    assert stack_texts.dumped(written(inside)) == inside
    assert stack_texts.dumped(written(own + STEP + call("run_file"))) == inside


@pytest.mark.parametrize(
    "frames",
    [
        STEP,
        STEP + call("connect"),
        STEP + call("run_file")[:2],
        call("run_file"),  # the program is read
        call("run_file")[1:],
    ],
)
def test_other_stacks_are_whole(frames: Frames) -> None:
    assert stack_texts.dumped(written(frames)) == frames
