"""``%plot``: curves in a real cell, from lines of real and of plain programs."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.colors import uncolored
from tests.helpers.kernels import Kernel, Place, Request
from tests.helpers.pictures import texts

PLAIN = """\
%framework=tensorflow
%worker=2
%plot=loss,losss
import os, time
here = int(os.environ["CIAO_REPLICA"][-1])
for step in range(0, 100, 10):
    print(f"step {step} loss {1 / (step + 1) + here} accuracy: 0.5 <b>", flush=True)
print("ready", flush=True)
while not os.path.exists("go-on"):
    time.sleep(0.02)
print('{"step": 100, "loss": NaN}')
"""
KERAS = """\
%framework=tensorflow
%worker=1
%plot=loss,val_loss
import numpy, keras
x = numpy.random.default_rng(0).random((320, 4)).astype("float32")
model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), epochs=3, batch_size=32, validation_split=0.5)
model.evaluate(x, x.sum(1) + 1000)
"""
TORCH = """\
%framework=pytorch
%master=1
%worker=1
%plot=loss
import os, torch
torch.manual_seed(int(os.environ["RANK"]))
x = torch.rand(64, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    for step in range(20):
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"Epoch [{epoch + 1}/2], Step [{step + 1}/20], Loss: {loss.item():.4f}")
"""


def pictures(request: Request) -> list[dict[str, Any]]:
    """What was shown in the place of the curves, from first to last."""
    kinds = ("display_data", "update_display_data")
    shown = [
        content for content in request.of(*kinds) if "plot" in content["transient"]["display_id"]
    ]
    assert len({content["transient"]["display_id"] for content in shown}) == 1
    return shown


def drawn(request: Request) -> list[str]:
    """The texts of the newest picture that was drawn while the job ran or ended."""
    live = [picture["data"]["text/html"] for picture in pictures(request) if has_html(picture)]
    return texts(live[-1])


def has_html(picture: dict[str, Any]) -> bool:
    return "text/html" in picture["data"]


def kept(request: Request) -> dict[str, Any]:
    """The last picture, which the notebook keeps."""
    last = pictures(request)[-1]
    assert set(last["data"]) == {"text/plain", "image/png"}
    assert base64.b64decode(last["data"]["image/png"]).startswith(b"\x89PNG\r\n\x1a\n")
    assert last["metadata"]["image/png"]["width"] == 720
    return last


def test_curves_grow_in_place_and_stay(shared: Kernel) -> None:
    request = shared.execute(PLAIN)
    shared.wait_running(request, shared.place)
    shared.wait(lambda: has_html(pictures(request)[-1]), "a picture")
    shared.wait(lambda: "worker-1 1.011" in drawn(request), "the last point so far")
    live = pictures(request)
    assert live[0]["data"] == {"text/plain": "%plot: loss and losss are drawn here"}
    assert all("image/png" not in picture["data"] for picture in live)
    for folder in shared.place.job_folders():
        (folder / "work" / "go-on").touch()
    shared.finish(request)
    assert request.status == "ok"
    last = kept(request)
    shown = drawn(request)
    assert {"loss", "step", "worker-0 nan", "worker-1 nan", "× nan or inf"} <= {*shown}
    lines = last["data"]["text/plain"].splitlines()
    assert [line.split()[:2] for line in lines] == [["loss", "worker-0"], ["loss", "worker-1"]]
    assert all(line.endswith("nan at step 100") for line in lines)
    # The lines themselves are shown as ever, and what was asked for in vain is said once.
    text = uncolored(request.text)
    for replica in ("worker-0", "worker-1"):
        assert text.count(f"[{replica}] step") == 10
        assert f'[{replica}] {{"step": 100, "loss": NaN}}\n' in text
    assert text.count("%plot: no line with `losss` was found; names found: loss, accuracy.\n") == 1
    # The wish is in the job's header: who attaches sees the same.
    (folder,) = shared.place.job_folders()
    again = shared.run(f"%ciao attach {folder.name}")
    assert drawn(again) == shown
    assert kept(again)["data"]["text/plain"] == last["data"]["text/plain"]


def test_a_stopped_job_keeps_its_curves(shared: Kernel) -> None:
    request = shared.execute(PLAIN)
    shared.wait_running(request, shared.place)
    shared.interrupt()
    shared.finish(request)
    assert request.error == "KeyboardInterrupt"
    shared.wait(lambda: "image/png" in pictures(request)[-1]["data"], "the last picture")
    assert "0.01099 at step 90" in kept(request)["data"]["text/plain"]
    assert "worker-0 0.01099" in drawn(request)
    shared.place.wait_empty()


SLOW = """\
import threading
from ciao_kernel.display.plot import png
go, engrave = threading.Event(), png.png
png.png = lambda picture: (go.wait(100), engrave(picture))[1]
"""
SHORT = "%framework=tensorflow\n%plot=loss\nprint('step 1 loss 0.5')\n"


def test_a_job_that_is_over_is_not_stopped(kernel: Any, place: Place) -> None:
    kernel.run(SLOW)  # the moment in which the last picture is made, made long
    request = interrupted_at_the_end(kernel, SHORT)
    assert "stop" not in request.text
    assert kernel.run("print(_job.state)").text == "Succeeded\n"
    (folder,) = place.job_folders()
    again = interrupted_at_the_end(kernel, f"%ciao attach {folder.name}")
    assert "keeps running" not in again.text
    # What an end brings with it comes all the same.
    last = interrupted_at_the_end(kernel, "%cleanPolicy=all\n" + SHORT)
    assert "and its files are removed (%cleanPolicy=all).\n" in last.text
    assert "stop" not in last.text
    assert place.job_folders() == [folder]
    place.wait_empty()


def interrupted_at_the_end(kernel: Any, code: str) -> Request:
    """Run a cell, and interrupt it while the last picture is made."""
    kernel.run("go.clear()")
    request = kernel.execute(code)
    kernel.wait(lambda: any(": Succeeded" in one for one in request.tables), "the job's end")
    kernel.interrupt()
    kernel.finish(request)
    assert request.error == "KeyboardInterrupt"
    kernel.run("go.set()")
    kernel.wait(lambda: "image/png" in pictures(request)[-1]["data"], "the last picture")
    titles = [one.splitlines()[0] for one in request.tables if "\nreplica" in one]
    assert titles[-1].endswith(": Succeeded")
    return request


def test_without_the_wish_there_is_no_picture(kernel: Any) -> None:
    request = kernel.run("%framework=tensorflow\nimport sys\nprint('step 1 loss 2')\n")
    assert request.status == "ok"
    kinds = ("display_data", "update_display_data")
    assert all("text/html" in content["data"] for content in request.of(*kinds))
    assert not any("plot" in one["transient"]["display_id"] for one in request.of(*kinds))
    used = kernel.run("import sys, json\nprint(json.dumps([*sys.modules]))")
    package = "ciao_kernel.display.plot"
    assert not [name for name in json.loads(used.text) if f"{name}.".startswith(f"{package}.")]


@pytest.mark.second("packages")
@pytest.mark.frameworks
def test_what_keras_writes_is_drawn(shared: Kernel, figure: Callable[[str], None]) -> None:
    pytest.importorskip("keras")
    request = shared.run(KERAS, within=240)
    assert request.status == "ok", request.text
    last = kept(request)
    loss, val_loss = last["data"]["text/plain"].splitlines()
    # Three epochs of five batches of 32 each, on one axis; the evaluation is not part of it.
    assert re.fullmatch(r"loss  worker-0  [▁-█]+ +\d\.[\de-]+ at step 15", loss)
    assert re.fullmatch(r"val_loss  worker-0  [▁-█]{3} +[\d.e-]+ at step 15", val_loss)
    figure(f"{loss} (Python {sys.version_info[0]}.{sys.version_info[1]})")


@pytest.mark.second("packages")
@pytest.mark.frameworks
def test_what_a_torch_loop_writes_is_drawn(shared: Kernel) -> None:
    pytest.importorskip("torch")
    request = shared.run(TORCH, within=240)
    assert request.status == "ok", request.text
    last = kept(request)
    lines = last["data"]["text/plain"].splitlines()
    assert [line.split()[:2] for line in lines] == [["loss", "master-0"], ["loss", "worker-0"]]
    assert all(line.endswith("at step 40") for line in lines)
