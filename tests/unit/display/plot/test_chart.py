"""Curves as pictures and as text: right places, readable colours, and nothing a job can inject."""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.display.plot import aggregate, axes, chart, curves, sparklines
from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.display.plot.png import png
from ciao_kernel.display.plot.stroke_font import length, strokes
from ciao_kernel.display.plot.svg import INK, Area, Line, Picture, Text, html, svg
from ciao_kernel.magics.directives import plots
from ciao_kernel.model import Job, Output, Replica
from ciao_kernel.model.replica_colors import color_of
from tests.helpers.pictures import image
from tests.helpers.pictures import svg as svg_of
from tests.helpers.pictures import texts as texts_of

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e299, 1e299)


def metrics(count: int = 2, steps: int = 30, wishes: tuple[str, ...] = ("loss",)) -> Metrics:
    made = Metrics(wishes)
    for step in range(steps):
        for index in range(count):
            line = f"step {step} loss {index + 1 / (step + 1)} accuracy {step / steps}\n"
            made.add(Replica("worker", index), line.encode())
    return made


def texts(picture: Picture) -> list[str]:
    return [shape.text for shape in picture.shapes if isinstance(shape, Text)]


def drawn(picture: Picture) -> list[Line]:
    """The curves: what is no axis, no sample of the legend and no dot."""
    lines = [shape for shape in picture.shapes if isinstance(shape, Line)]
    return [line for line in lines if line.color != INK and len(line.points) > 2]


def curve_lines(picture: Picture) -> list[Line]:
    """As :func:`drawn`, with curves of two points."""
    lines = [shape for shape in picture.shapes if isinstance(shape, Line) and shape.color != INK]
    return [line for line in lines if len(line.points) > 1 and line.width == 1.8]


# ------------------------------------------------------------------------------------ axes


@given(st.lists(NUMBERS, min_size=1, max_size=5), st.integers(2, 8), st.booleans())
def test_every_value_lies_on_its_axis(values: list[float], ticks: int, whole: bool) -> None:
    for axis in (axes.linear(values, ticks, whole=whole), axes.linear_or_log(values, ticks)):
        for value in values:
            assert -1e-6 <= axis.at(value) <= 1 + 1e-6
        assert len(axis.ticks) <= 2 * ticks + 1
        assert all(-1e-6 <= axis.at(tick) <= 1 + 1e-6 for tick in axis.ticks)
        labels = [axis.label(tick) for tick in axis.ticks]
        assert all(len(label) <= (20 if axis.whole else 14) for label in labels)


@pytest.mark.parametrize(
    ("values", "whole", "labels"),
    [
        ([0.03, 0.96], False, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([0, 3000], True, ["0", "1,000", "2,000", "3,000"]),
        ([1, 3], True, ["1", "2", "3"]),
        ([0.312, 0.313], False, ["0.3120", "0.3122", "0.3124", "0.3126", "0.3128", "0.3130"]),
        ([5], True, ["4", "5", "6"]),
        ([0], True, ["0", "1"]),
        (
            [1_234_000, 1_235_000],
            True,
            ["1,234,000", "1,234,250", "1,234,500", "1,234,750", "1,235,000"],
        ),
        ([0, 3e12], True, ["0", "1,000,000,000,000", "2,000,000,000,000", "3,000,000,000,000"]),
        # Epochs need not be whole.
        ([0.05, 0.9], True, ["0.25", "0.50", "0.75"]),
        ([0.5], True, ["0", "0.5", "1.0", "1.5"]),
        (
            [1_234_000, 1_234_010],
            False,
            ["1,234,000", "1,234,002", "1,234,004", "1,234,006", "1,234,008", "1,234,010"],
        ),
        (
            [3e9, 3.0004e9],
            False,
            ["3.0000e+09", "3.0001e+09", "3.0002e+09", "3.0003e+09", "3.0004e+09"],
        ),
        ([1.2e-5, 1.24e-5], False, ["1.20e-05", "1.21e-05", "1.22e-05", "1.23e-05", "1.24e-05"]),
    ],
)
def test_ticks_stand_at_round_numbers(values: list[float], whole: bool, labels: list[str]) -> None:
    axis = axes.linear(values, 4 if whole else 5, whole=whole)
    assert [axis.label(tick) for tick in axis.ticks] == labels


def test_values_far_apart_are_on_a_logarithmic_axis() -> None:
    axis = axes.linear_or_log([1000, 0.002], 5)
    assert [axis.label(tick) for tick in axis.ticks] == ["0.001", "0.1", "10", "1000"]
    assert axis.at(0.1) == pytest.approx(1 / 3)
    assert axes.linear_or_log([-1, 1e9], 5).step
    assert axes.linear_or_log([0, 1e9], 5).step


@pytest.mark.parametrize("values", [[3e-323], [3e-323, 0], [-3e-323, 3e-323], [1e-299, 3e-323]])
def test_values_that_are_almost_0_have_a_place(values: list[float]) -> None:
    for axis in (axes.linear(values, 5), axes.linear(values, 5, whole=True)):
        assert all(-1e-6 <= axis.at(value) <= 1 + 1e-6 for value in values)
    made = Metrics(("loss",))
    for value in values:
        made.add(ONE, f"loss {value}\n".encode())
    assert texts(chart.draw(made, "loss of mnist"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.3124567, "0.3125"), (20, "20"), (12000, "12,000"), (1.5e-5, "1.5e-05"), (0, "0")),
        *((math.nan, "nan"), (-math.inf, "-inf"), (1234.56, "1,234.6"), (3e9, "3e+09")),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert axes.number(value) == text


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.booleans())
def test_no_two_ticks_say_the_same(low: float, span: float, whole: bool) -> None:
    if span > abs(low) * 1e-5:
        axis = axes.linear([low, low + span], 5, whole=whole)
        labels = [axis.label(tick) for tick in axis.ticks]
        assert len({*labels}) == len(labels)


# ---------------------------------------------------------------------------------- curves


def test_few_replicas_have_a_curve_each() -> None:
    picture = chart.draw(metrics(3), "loss of mnist")
    assert len(drawn(picture)) == 3
    assert len({line.color for line in drawn(picture)}) == 3
    shown = texts(picture)
    assert shown[0] == "loss"
    assert "worker-0 0.03333" in shown
    assert "worker-2 2.033" in shown
    assert "step" in shown
    first = drawn(picture)[0].points
    assert [x for x, _ in first] == sorted({x for x, _ in first})
    assert first[0][1] < first[-1][1]  # the loss falls


def test_each_curve_of_the_most_is_told_from_the_others() -> None:
    lines = drawn(chart.draw(metrics(8), ""))
    assert len({(line.color, line.dash) for line in lines}) == 8


def test_many_replicas_are_a_median_and_a_span() -> None:
    made = metrics(64)
    picture = chart.draw(made, "")
    assert len(drawn(picture)) == 1
    spans = [shape for shape in picture.shapes if isinstance(shape, Area)]
    assert max(len(span.top) for span in spans) == len(drawn(picture)[0].points)
    (span,) = (span for span in spans if len(span.top) > 2)
    for (_, top), (_, middle), (_, bottom) in zip(
        span.top, drawn(picture)[0].points, span.bottom, strict=True
    ):
        assert top <= middle <= bottom
    shown = " ".join(texts(picture))
    assert "median of 64 replicas 31.53" in shown
    assert "lowest worker-0 0.03333, highest worker-63 63.03" in shown
    assert len(sparklines.describe(made)) == 1
    made.add(ONE, b"step 30 loss nan\n")
    assert "64 replicas, 1 of them nan" in sparklines.describe(made)[0]


def test_each_metric_is_a_panel() -> None:
    one = chart.draw(metrics(), "")
    both = chart.draw(metrics(wishes=("loss", "accuracy", "losss")), "")
    assert both.height > 1.8 * one.height
    assert [text for text in texts(both) if text in ("loss", "accuracy", "losss")] == [
        "loss",
        "accuracy",
    ]


def test_what_is_no_number_leaves_a_gap_and_a_mark() -> None:
    made = Metrics(("loss",))
    values = [3, 2, 2, math.nan, math.inf, 1, 1, 1]
    for step, value in enumerate(values):
        made.add(ONE, f"step {step} loss {value}\n".encode())
    picture = chart.draw(made, "")
    assert [len(line.points) for line in drawn(picture)] == [3, 3]
    assert "× nan or inf" in texts(picture)
    assert "█▅▅××▁▁▁" in sparklines.describe(made)[0]
    made.add(ONE, b"step 8 loss nan\n")
    assert "worker-0 nan" in texts(chart.draw(made, ""))


@given(st.lists(st.floats(), min_size=1, max_size=12), st.integers(1, 10))
@settings(max_examples=50, deadline=None)
def test_any_values_can_be_drawn(values: list[float], count: int) -> None:
    made = Metrics(("loss",))
    for step, value in enumerate(values):
        for index in range(count):
            made.add(Replica("worker", index), f"step {step} loss {value!r}\n".encode())
    picture = chart.draw(made, "")
    ElementTree.fromstring(svg(picture))
    assert "nan" not in "".join(
        path.attrib["d"] for path in ElementTree.fromstring(svg(picture)).iter(f"{SVG}path")
    )
    assert sparklines.describe(made)
    for shape in picture.shapes:
        if isinstance(shape, Line):
            assert all(
                -10 <= x <= chart.WIDTH and -10 <= y <= picture.height for x, y in shape.points
            )


def test_words_say_the_last_value_of_each_replica() -> None:
    lines = sparklines.describe(metrics(2))
    assert [line.split()[:2] for line in lines] == [["loss", "worker-0"], ["loss", "worker-1"]]
    assert lines[0].endswith("0.03333 at step 29")
    assert "█▅▄▃▃▂" in lines[0]


def test_a_missing_metric_is_named_with_what_was_seen() -> None:
    made = metrics(wishes=("losss", "loss", "auc"))
    said = "no line with `losss` or `auc` was found; names found: loss, accuracy."
    assert sparklines.unseen(made) == said
    assert sparklines.unseen(metrics()) == ""
    assert sparklines.unseen(Metrics(("loss",))) == "no line with `loss` was found."


# -------------------------------------------------------------------------------- pictures


def test_svg_has_no_script_no_style_and_escapes_what_a_job_wrote() -> None:
    evil = "<script>alert(1)</script>\"'&\x00\x1b"
    root = ElementTree.fromstring(svg(Picture(10, 10, [Text(0, 0, evil)], evil)))
    assert {one.tag for one in root.iter()} == {f"{SVG}svg", f"{SVG}title", f"{SVG}text"}
    text = root.find(f"{SVG}text")
    assert text is not None
    assert text.text == evil.replace("\x00", "�").replace("\x1b", "�")
    whole = svg(chart.draw(metrics(64, wishes=("loss", "accuracy")), evil))
    tags = {one.tag.removeprefix(SVG) for one in ElementTree.fromstring(whole).iter()}
    assert tags == {"svg", "title", "path", "text"}
    assert "href" not in whole


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_colours_read_on_white_and_on_black(ground: str) -> None:
    def contrast(color: str) -> float:
        low, high = sorted((luminance(color), luminance(ground)))
        return (high + 0.05) / (low + 0.05)

    assert contrast(INK) >= 4.2
    colors = {line.color for line in drawn(chart.draw(metrics(8), ""))}
    assert len(colors) == 8
    assert all(contrast(color) >= 3 for color in colors)


def test_a_curve_has_the_colour_of_its_replica_and_so_has_its_sample() -> None:
    made = Metrics(("loss",))
    written = (Replica("ps", 0), Replica("worker", 1), Replica("worker", 9))
    for replica in written:
        for step in range(5):
            made.add(replica, f"step {step} loss {1 / (step + 1)}\n".encode())
    picture = chart.draw(made, "")
    expected = [color_of(one).html for one in written]
    assert [line.color for line in drawn(picture)] == expected
    samples = [
        line
        for line in picture.shapes
        if isinstance(line, Line) and line.width == 2 and len(line.points) == 2
    ]
    assert [line.color for line in samples] == expected
    assert [bool(line.dash) for line in samples] == [False, False, True]


def dots(image: bytes) -> tuple[int, int, list[bytes], bytes]:
    """Read a PNG with a palette: width, height, rows, and the opacity of each index."""
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(image):
        (size,) = struct.unpack(">I", image[at : at + 4])
        kind, body = image[at + 4 : at + 8], image[at + 8 : at + 8 + size]
        (check,) = struct.unpack(">I", image[at + 8 + size : at + 12 + size])
        assert check == zlib.crc32(kind + body)
        chunks[kind], at = body, at + 12 + size
    width, height, *form = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert form == [8, 3, 0, 0, 0]
    data = zlib.decompress(chunks[b"IDAT"])
    rows = [data[start + 1 : start + 1 + width] for start in range(0, len(data), width + 1)]
    assert len(rows) == height
    assert max(map(max, rows)) < len(chunks[b"PLTE"]) // 3
    return width, height, rows, chunks[b"tRNS"]


def test_png_is_the_same_picture() -> None:
    line = Line([(10, 10), (30, 10)], "#ff0000", 2)
    area = Area([(10, 20), (30, 20)], [(10, 30), (30, 30)], "#00ff00", 0.4)
    steep = Line([(35, 5), (35, 35)], "#ff0000", 2)
    width, height, rows, opacity = dots(png(Picture(40, 40, [area, line, steep], "")))
    assert (width, height) == (80, 80)
    assert opacity[rows[20][40]] == 255
    assert opacity[rows[50][40]] == round(0.4 * 255)
    assert opacity[rows[40][70]] == 255
    assert opacity[rows[5][5]] == 0
    assert opacity[rows[70][40]] == 0


@pytest.mark.parametrize("count", [1, 8, 64])
def test_png_of_curves_is_well_formed(count: int) -> None:
    picture = chart.draw(metrics(count, 1 if count == 1 else 30, ("loss", "accuracy")), "")
    width, height, rows, _ = dots(png(picture))
    assert (width, height) == (2 * picture.width, 2 * picture.height)
    assert sum(map(bool, b"".join(rows))) > 1000


@pytest.mark.parametrize("text", ["1.00", "1,00", "1:00"])
def test_a_point_in_a_number_stands_by_itself(text: str) -> None:
    _, _, rows, opacity = dots(png(Picture(60, 30, [Text(10, 20, text)], "")))
    # The base line is between rows 39 and 40; below a comma's dot is its tail.
    inked = "".join(
        " #"[max(opacity[row[x]] for row in rows[37:42]) > 128] for x in range(len(rows[0]))
    )
    found = re.match(r" *#+( +)(#+)( +)#+ +#+ *$", inked)
    assert found, inked
    assert min(map(len, found.groups())) >= 3, inked
    assert len(found[2]) >= 4, inked


@given(st.text(max_size=20))
def test_any_text_has_strokes(text: str) -> None:
    places = [x for stroke in strokes(text, 12) for x, _ in stroke]
    assert all(0 <= x <= length(text, 12) + 1e-6 for x in places)


# ----------------------------------------------------------------------- of a followed job


def job(*plot: str) -> Job:
    return Job("mnist", "local", "tensorflow", (ONE, TWO), 0.0, plot=plot)


def test_the_wish_is_in_the_header_of_the_job() -> None:
    assert plots.metrics_in("%framework=tensorflow\n%plot=loss 'val loss'\n") == (
        "loss",
        "val loss",
    )
    assert plots.metrics_in("%framework=tensorflow\n%name=x\n") == ()
    assert plots.metrics_in("%args=%plot\n%plot=\n") == ()


def test_a_long_curve_is_fair_to_its_start_in_words() -> None:
    made = Metrics(("loss",))
    for step in [*range(100), 10_000]:  # nearly all points are at the start
        made.add(ONE, f"step {step} loss {step}\n".encode())
    assert "▁" * 23 + "█" in sparklines.describe(made)[0]
    assert sparklines.brief(made) == "loss ▁▁▁▁▁▁▁█ 10,000 at step 10,000"


def test_one_line_says_where_all_metrics_are() -> None:
    assert sparklines.brief(metrics(1)) == "loss █▄▃▂▂▁▁▁ 0.03333 at step 29"
    names = tuple(f"m{number}x" for number in range(6))
    made = Metrics((*names, "losss"))
    for replica in (ONE, TWO):
        line = "step 1 " + " ".join(f"{name} 1" for name in names)
        made.add(replica, line.encode() + b"\n")
    first, *_, last = sparklines.brief(made).split("; ")
    assert (first, last) == ("m0x ▁ median of 2 replicas 1", "and 2 more")
    assert sparklines.brief(Metrics(("loss",))) == ""


def test_replicas_that_write_at_different_steps_are_drawn_together() -> None:
    made = Metrics(("loss",))
    for step in range(0, 100_000, 10_000):
        for index in range(16):
            at = step + 600 * index  # few write in the same part of the axis
            made.add(Replica("worker", index), f"step {at} loss {at + index}\n".encode())
    points = list(aggregate.together(made.curves["loss"]))
    assert len(points) > 100
    for place, low, middle, high in points:
        assert low <= middle <= high
        assert abs(middle - place) < 500
    (line,) = drawn(chart.draw(made, ""))
    assert line.points[0][0] < 100
    assert line.points[-1][0] > 650


def test_what_lies_behind_no_number_is_not_drawn_through() -> None:
    made = Metrics(("loss",))
    for index in range(9):
        for step, value in ((0, "1"), (50, "nan"), (100, "1")):
            made.add(Replica("worker", index), f"step {step} loss {value}\n".encode())
    made.add(Replica("worker", 9), b"".join(b"step %d loss 1\n" % step for step in range(101)))
    assert [place for place, *_ in aggregate.together(made.curves["loss"])] == [0, 100]


def test_a_picture_of_very_much_is_bounded() -> None:
    names = tuple(f"m{number}x" for number in range(chart.PANELS + 1))
    made = Metrics(names)
    for step in range(480):
        for index in range(8):
            values = " ".join(f"{name} {math.sin(step * (index + 1))}" for name in names)
            made.add(Replica("worker", index), f"step {step} {values}\n".encode())
    picture = chart.draw(made, "")
    assert set(texts(picture)) & {*names} == {*names[:-1]}
    lines = drawn(picture)
    assert len(lines) == 8 * chart.PANELS
    assert sum(len(line.points) for line in lines) <= 12_000
    assert len(svg(picture)) < 300_000
    # So many lines have one dot for each pixel, and not two.
    assert dots(png(picture))[:2] == (picture.width, picture.height)
    assert all(len(line.points) == 480 for line in drawn(chart.draw(metrics(8, 480), "")))


def test_metrics_that_count_the_same_have_the_same_axis() -> None:
    made = Metrics(("loss", "val_loss"))
    for step in range(0, 101, 10):
        made.add(ONE, f"step {step} loss 1\n".encode())
        if step in (50, 100):
            made.add(ONE, b"val_loss 2\n")
    ends = [(line.points[0][0], line.points[-1][0]) for line in curve_lines(chart.draw(made, ""))]
    (first, last), (half, same) = ends
    assert (half, same) == ((first + last) / 2, last)


def test_labels_beside_the_axis_have_room() -> None:
    made = Metrics(("loss",))
    for step in range(4):
        made.add(ONE, f"step {1_234_000 + step} loss {2_345_000 + 100 * step}\n".encode())
    picture = chart.draw(made, "")
    shown = texts(picture)
    assert {"2,345,000", "2,345,300", "1,234,001", "1,234,003"} <= {*shown}
    assert len({*shown}) == len(shown)
    beside = [text for text in picture.shapes if isinstance(text, Text) and text.anchor == "end"]
    assert all(text.x - length(text.text, text.size) > 0 for text in beside)


def test_a_live_picture_is_an_image_that_fits_into_a_narrow_page() -> None:
    picture = Picture(720, 300, [Text(1, 2, "<b>\ud800")], 'loss of "mnist" <script>\x07')
    written = html(picture)
    shown = image(written)
    assert svg_of(written) == svg(picture)
    assert texts_of(written) == ["<b>\ufffd"]
    assert (shown["width"], shown["height"]) == ("720", "300")
    assert shown["alt"] == 'loss of "mnist" <script>\ufffd'
    assert {*shown["style"].split(";")} >= {"max-width:100%", "height:auto"}
    assert "<script" not in written


def test_what_is_kept_is_a_png_with_its_size_and_description() -> None:
    some = curves.Curves(job(), ("loss",))
    some.output(Output(ONE, b"loss 1\nloss 2\n", 2))
    live = some.draw()
    assert live is not None
    kept, metadata = some.keep()
    assert {*kept} == {"text/plain", "image/png"}
    assert kept["text/plain"] == live["text/plain"]
    shown = image(live["text/html"])
    told = metadata["image/png"]
    assert (str(told["width"]), str(told["height"])) == (shown["width"], shown["height"])
    assert told["alt"] == shown["alt"] == "loss of mnist"
    wide, high = struct.unpack(">II", base64.b64decode(kept["image/png"])[16:24])
    assert (wide, high) == (2 * told["width"], 2 * told["height"])


def test_a_job_that_writes_faster_than_is_read_has_fewer_points() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.6
        return now

    some = curves.Curves(job(), ("loss",), clock)
    for start in range(0, 10_000, 1_000):
        lines = [f"Epoch {start // 1_000}"]
        lines += [f"loss {value} and more" for value in range(start, start + 1_000)]
        some.output(Output(ONE, "\n".join(lines).encode() + b"\n", len(lines)))
    (line,) = some.lines()
    assert line.endswith("9,999 at epoch 9")
    said = some.closing_text()
    read = re.fullmatch(r"%plot: the lines came too fast; ([\d,]+) of 10,010 were read\.\n", said)
    assert read
    assert 500 < int(read[1].replace(",", "")) < 5_000
    drawn = some.draw()
    assert drawn is not None
    assert {*drawn} == {"text/plain", "text/html"}
    assert some.draw() is None


def test_what_few_lines_name_is_always_read() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.6
        return now

    some = curves.Curves(job(), ("loss", "Val Loss"), clock)
    for start in range(0, 20_000, 1_000):
        lines = [f"step {step} loss 1, an interval of 3" for step in range(start, start + 1_000)]
        lines.insert(300, f"step {start + 299} validation loss {start}")
        some.output(Output(ONE, "\n".join(lines).encode() + b"\n", len(lines)))
    series = some._metrics.curves["val_loss"][ONE]
    assert series.x == [start + 299 for start in range(0, 20_000, 1_000)]
    assert "of 20,020 were read" in some.closing_text()


def test_what_is_read_of_much_is_in_order() -> None:
    filler = ["loss 1 and some more"] * 300
    lines = [*filler, "Epoch 1", *filler, "before", "Val loss 2", "VAL loss 3", *filler]
    lines += ["Epoch 2", "Epoch 3", *filler]
    some = curves._sample("\n".join(lines).encode() + b"\n", ((b"loss",), (b"val", b"loss")))
    kept = some.decode().splitlines()
    assert kept[:5] == ["Epoch 1", "before", "Val loss 2", "VAL loss 3", "Epoch 3"]
    assert {*kept[5:]} == {filler[0]}
    assert 150 < len(kept) < 250
