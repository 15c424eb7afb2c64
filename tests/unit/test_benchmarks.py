"""Benchmarks on a machine that lacks a peer."""

from __future__ import annotations

import sys

import pytest

from benchmarks import plot_png


def test_a_picture_without_a_peer_misses_its_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, plot_png.PEER, raising=False)
    figure = next(plot_png.measure())
    assert "left out: Pillow cannot be had" in capsys.readouterr().out
    assert figure.ours > 0
    assert not figure.met
    assert figure.note == "could not be had"


def test_a_picture_has_the_same_size_by_both() -> None:
    pytest.importorskip("PIL")
    from benchmarks import pillow_png
    from ciao_kernel.display.plot.png import png

    picture = plot_png._picture(1, 8)
    ours, theirs = (writer(picture)[16:24] for writer in (png, pillow_png.png))  # of IHDR
    assert ours == theirs
