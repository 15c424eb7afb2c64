"""Numbers in log lines: every usual form, and no line that does harm."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.display.plot.log_line import normalize_name, read
from ciao_kernel.display.plot.metrics import Metrics
from ciao_kernel.model import Replica
from tests.helpers.growth import is_linear

ONE = Replica("worker", 0)
BAR = "━" * 20
READ_IN_BRACKETS = {"loss": 0.31, "acc": 1, "lr": 0.1}


@pytest.mark.parametrize(
    ("line", "values", "step", "epoch"),
    [
        ("step 20 loss 0.31", {"loss": 0.31}, 20, None),
        ("loss: 0.31", {"loss": 0.31}, None, None),
        ("Loss = .31e-1", {"loss": 0.031}, None, None),
        ("loss is 0.31", {"loss": 0.31}, None, None),
        ("loss -> -0.31", {"loss": -0.31}, None, None),
        ('{"step": 20, "loss": 0.31}', {"loss": 0.31}, 20, None),
        ('{"global_step": 20, "step": 2, "m": {"acc": 1e-3}}', {"acc": 0.001}, 20, None),
        ("{'loss': 0.31, 'epoch': 0.1}", {"loss": 0.31}, None, 0.1),
        ("epoch=1 step=20 loss=0.31", {"loss": 0.31}, 20, 1),
        (
            f"10/100 {BAR} 1s 5ms/step - accuracy: 0.9000 - loss: 0.3100",
            {"accuracy": 0.9, "loss": 0.31},
            10,
            None,
        ),
        (
            "100/100 - 1s - 5ms/step - loss: 0.3 - val_loss: 0.4",
            {"loss": 0.3, "val_loss": 0.4},
            100,
            None,
        ),
        (f" 782/Unknown {BAR} 10s 12ms/step - loss: 1.2", {"loss": 1.2}, 782, None),
        ("Epoch 3/10", {}, None, 3),
        (
            "Epoch 0: 10%|#  | 20/200 [00:01<00:10, 15.0it/s, v_num=1, train_loss=0.31]",
            {"v_num": 1, "train_loss": 0.31},
            20,
            0,
        ),
        (" 20%|██  | 20/100 [00:01<00:05, 15.1it/s, loss=0.31]", {"loss": 0.31}, 20, None),
        ("20it [00:01, 15.1it/s, loss=0.31]", {"loss": 0.31}, 20, None),
        ("Epoch [3/10], Step [20/100], Loss: 0.3124", {"loss": 0.3124}, 20, 3),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.301", {"train_loss": 2.301}, 640, 1),
        (
            "Test set: Average loss: 0.0321, Accuracy: 9900/10000 (99%)",
            {"test_loss": 0.0321, "test_accuracy": 0.99},
            None,
            None,
        ),
        (
            "Epoch: [0][ 20/5005]\tTime  0.4 ( 0.5)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.20)",
            {"time": 0.4, "loss": 6.9, "acc_1": 0},
            20,
            0,
        ),
        ("INFO:tensorflow:loss = 0.31, step = 100 (0.5 sec)", {"loss": 0.31}, 100, None),
        (
            "Saving dict for global step 100: accuracy = 0.9, global_step = 100, loss = 0.3",
            {"accuracy": 0.9, "loss": 0.3},
            100,
            None,
        ),
        ("[2026-11-21 23:48:31] epoch 3 | iter 20/ 100 | loss: 1.2e-3", {"loss": 0.0012}, 20, 3),
        (
            "| epoch   1 |   200/ 2983 batches | lr 20.00 | loss  7.60 | ppl  1997.5",
            {"lr": 20, "loss": 7.6, "ppl": 1997.5},
            200,
            1,
        ),
        (
            "Train loss: 0.4, acc: 0.9 | Val loss: 0.5, acc: 0.8",
            {"train_loss": 0.4, "train_acc": 0.9, "val_loss": 0.5, "val_acc": 0.8},
            None,
            None,
        ),
        ("step 20: train loss 0.3, val loss 0.4", {"train_loss": 0.3, "val_loss": 0.4}, 20, None),
        ('{"epoch": 1, "train/loss": 0.31}', {"train_loss": 0.31}, None, 1),
        ("loss: tensor(0.3100, grad_fn=<NllLossBackward0>)", {"loss": 0.31}, None, None),
        ("loss np.float32(0.31)", {"loss": 0.31}, None, None),
        ("loss: inf step: 3 lr: -Infinity", {"loss": math.inf, "lr": -math.inf}, 3, None),
        ("loss=inf.0, acc=-inf., lr=1", {"loss": math.inf, "acc": -math.inf, "lr": 1}, None, None),
        ("Training loss (for 1 batch) at step 0: 131.3", {"train_loss": 131.3}, 0, None),
        ("Epoch 1: Loss at step 1,000: 0.31, acc 1", {"loss": 0.31, "acc": 1}, 1000, 1),
        ("Saving model at step 100: loss 0.31", {"loss": 0.31}, 100, None),
        ("epoch 4 loss 0.25 (best epoch 1)", {"loss": 0.25}, None, 4),
        ("Best epoch: 3, last epoch 7, loss 0.3", {"loss": 0.3}, None, 7),
        ("Training acc over epoch: 0.7886", {}, None, None),
        ("average over epoch 5: loss=0.5", {"loss": 0.5}, None, 5),
        ("[total epoch: 10, epoch: 3] loss 1", {"loss": 1}, None, 3),
        ("max epoch 10 | epoch 3 | loss 1", {"loss": 1}, None, 3),
        ("Steps per epoch: 100, epoch 2", {}, None, 2),
        ("ETA: 0:00:10 - loss: 0.31", {"loss": 0.31}, None, None),
        ("2026/11/21 23:48 loss 0.31", {"loss": 0.31}, None, None),
        ("[01/15 12:00:00] loss 0.31", {"loss": 0.31}, None, None),
        ("1/15, 12:00 loss 0.31", {"loss": 0.31}, None, None),
        ("01/15T12:00:00 loss 0.31", {"loss": 0.31}, None, None),
        (
            "01/15 12:00:00 - mmengine - INFO - [1][50/100] eta: 0:00:10  loss: 0.3",
            {"loss": 0.3},
            50,
            None,
        ),
        (
            f"Epoch 0/9 {BAR} 20/50 0:00:01 • 0:00:10 15.0it/s v_num: 1.0 train_loss: 0.3",
            {"v_num": 1, "train_loss": 0.3},
            20,
            0,
        ),
        ("step 1,000 loss: 1,234.5", {"loss": 1234.5}, 1000, None),
        ("step 1,000/20,000: loss 0.3", {"loss": 0.3}, 1000, None),
        ("10,000/20,000 [00:01<00:05, loss=-1,234,567e-6]", {"loss": -1.234567}, 10_000, None),
        ("step=1,loss=1,acc=2", {"loss": 1, "acc": 2}, 1, None),
        ("step 1, loss 0.31, acc 1, lr 2", {"loss": 0.31, "acc": 1, "lr": 2}, 1, None),
        # Two counters in brackets are epoch and step: PyTorch's DCGAN.
        ("[0/5][50/1583]\tLoss_D: 1.25\tLoss_G: 3.5", {"loss_d": 1.25, "loss_g": 3.5}, 50, 0),
        ("[ 3/5] [ 50/1583] loss 0.31", {"loss": 0.31}, 50, 3),
        ("Epoch 7 [2/4][50/100] loss 0.31", {"loss": 0.31}, 50, 7),
        ("[3/10][INFO] [5/7] loss 0.31", {"loss": 0.31}, 3, None),
        ("[1/2][60/50] loss 0.31", {"loss": 0.31}, 1, None),
        ("[4/4][1/4] loss 0.31", {"loss": 0.31}, 1, 4),
        ("[50/1000] [1/4] loss 0.31", {"loss": 0.31}, 1, 50),
        ("Epoch 3 [50/1000] [1/4] loss 0.31", {"loss": 0.31}, 50, 3),  # a step and its parts
        ("[24/25][3/16]\tLoss: 0.31", {"loss": 0.31}, 3, 24),
        ("Epoch 1/5, Steps: 10/100, loss: 0.3", {"loss": 0.3}, 10, 1),
        # DeepSpeed's steps, and those of a line of settings.
        (
            "steps: 10 loss: 2.3125 iter time (s): 0.5 samples/sec: 12.5",
            {"loss": 2.3125, "samples_sec": 12.5},
            10,
            None,
        ),
        ("Namespace(steps=1000, lr=0.1)", {"steps": 1000, "lr": 0.1}, None, None),
        ("warmup steps: 100, loss: 1", {"steps": 100, "loss": 1}, None, None),
        ("all steps 100, loss 1", {"steps": 100, "loss": 1}, None, None),
        ("step 5 steps: 1000 loss: 1", {"steps": 1000, "loss": 1}, 5, None),
        ("steps: 1e20 loss: 1", {"steps": 1e20, "loss": 1}, None, None),
        ("Steps: 5/10 loss: 1", {"loss": 1}, 5, None),
        ("Steps: 5/10 reward: 3.0", {"steps": 0.5, "reward": 3}, None, None),
        # The length of an episode.
        (
            "Episode 3  steps: 150  reward: 5  loss: 0.3",
            {"episode": 3, "steps": 150, "reward": 5, "loss": 0.3},
            None,
            None,
        ),
        # With a decimal comma, or behind an index, the first digits are not the value.
        ("step=1,loss=0,123,acc=1,2345,auc=-1,234,5,lr=3", {"lr": 3}, 1, None),
        ("Epoch 3 loss 0,31 (0,35)", {}, None, 3),
        ("loss[0]: 0.31 loss[1] = 0.4 loss [2] -> 0.5", {}, None, None),
        ("I0000 00:00:17.6 285 port.cc:153] oneDNN is on", {}, None, None),
        ("E0000 00:00:17.6 285 a.cc:252] x {grpc_status:14, loss: 2}", {}, None, None),
        ("I1121 23:48:31.1 140 train.py:10] loss: 0.31", {"loss": 0.31}, None, None),
        ("I1121 23:48:31.1 140 trainer.cc:10] loss: 0.31", {"loss": 0.31}, None, None),
        ("To turn them off, set the variable `TF_ENABLE_ONEDNN_OPTS=0`.", {}, None, None),
        ("keras/src/epoch_iterator.py:74: UserWarning", {}, None, None),
        ("train.py:12: loss: 0.31", {"loss": 0.31}, None, None),
        (
            "score.py: 0.5 loss.c:0.4 time.go: 3",
            {"score_py": 0.5, "loss_c": 0.4, "time_go": 3},
            None,
            None,
        ),
        ("train loss(0): 0.31, val loss['1']: 0.4, ap[0.5]: 0.6", {}, None, None),
        ("step 3: loss[0, 1]: 0.31, loss[1,2]=0.4", {}, 3, None),
        ("step[20] loss[0] 0.31", {}, 20, None),
        ("Epoch[3]: step[20]: loss[0.31], acc [1], lr [0.1, 0.2]", READ_IN_BRACKETS, 20, 3),
        ("best loss (0.31): saved", {"loss": 0.31}, None, None),
        ("Accuracy (9900/10000): 99%", {"accuracy": 0.99}, None, None),
        # A word for a set of data is no metric, and counts only where it stands by itself.
        (
            "Validation:  50%|███  | 80/157 [00:01<00:00, 15.1it/s, loss=9]",
            {"val_loss": 9},
            80,
            None,
        ),
        ("val: 100%|███| 10/10 [loss=0.3]", {"val_loss": 0.3}, 10, None),
        ("Eval 10/10 loss 0.3", {"eval_loss": 0.3}, 10, None),
        (
            "Test: [ 10/79]\tTime  0.4 ( 0.5)\tLoss 0.3 (0.3)\tAcc@1 90.0 (90.0)",
            {"time": 0.4, "test_loss": 0.3, "test_acc_1": 90},
            10,
            None,
        ),
        (
            "Epoch 3: Train Loss 0.5 Val Loss 0.4 LR 0.001",
            {"train_loss": 0.5, "val_loss": 0.4, "lr": 0.001},
            None,
            3,
        ),
        ("INFO:pkg.test.loop:step 20 loss 0.31", {"loss": 0.31}, 20, None),
        ("test-job-worker-0 step 20 loss 0.31", {"loss": 0.31}, 20, None),
        ("/mnt/val/x step 20 loss 0.31", {"loss": 0.31}, 20, None),
        ("Loss/train: 0.31 step 20", {"train_loss": 0.31}, 20, None),
        (
            '{"step": 1, "loss": {"train": 0.3, "val": 0.4}, "lr": 0.1}',
            {"train_loss": 0.3, "val_loss": 0.4, "lr": 0.1},
            1,
            None,
        ),
        (
            '{"train": {"loss": 0.3}, "val": {"loss": 0.4}, "acc": 0.1}',
            {"train_loss": 0.3, "val_loss": 0.4, "acc": 0.1},
            None,
            None,
        ),
        # The percent of a tqdm bar is not the value of its description.
        *(
            (f"{head}: 20%|██   | 200/1000 [00:01<00:05, loss=0.31]", {"loss": 0.31}, 200, None)
            for head in ("Iteration", "Step", "Batch", "Epoch", "Map")
        ),
        ("Epoch 3: 20%|██   | 200/1000 [00:01<00:05]", {}, 200, 3),
        ("Validation: 100%|████| 10/10 [loss=0.3]", {"val_loss": 0.3}, 10, None),
        ("Training: 20%|██   | 200/1000 [loss=0.3]", {"train_loss": 0.3}, 200, None),
        ("accuracy: 20% | loss: 0.31", {"accuracy": 20, "loss": 0.31}, None, None),
        # Rounds of XGBoost and LightGBM, and numbers of processes.
        ("[20]\ttrain-rmse:0.31", {"train_rmse": 0.31}, 20, None),
        ("[23:48:31] [20]\ttrain-rmse:0.31", {"train_rmse": 0.31}, 20, None),
        ("[0] [20]\ttrain-rmse:0.31", {"train_rmse": 0.31}, 20, None),
        ("[0] loss: 0.31", {"loss": 0.31}, None, None),
        ("[0]\tstep 3 loss: 0.31", {"loss": 0.31}, 3, None),
        ("epochs: 3, batch size: 32", {"epochs": 3, "size": 32}, None, None),
        ("took 3.5 s, 10 loss functions, port 10.0.0.1, v1.2", {"took": 3.5}, None, None),
        ("nothing of interest", {}, None, None),
    ],
)
def test_a_line_is_read(
    line: str, values: dict[str, float], step: float | None, epoch: float | None
) -> None:
    found = read(line)
    assert (found.values, found.step, found.epoch) == (values, step, epoch)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (
            "epoch 4 | train loss 0.25 | val loss 0.70 | best val loss 0.20",
            {"train_loss": 0.25, "val_loss": 0.7},
        ),
        ("step 4 loss 0.25 best loss 0.05", {"loss": 0.25}),
        ("best loss 0.05 loss 0.25", {"loss": 0.25}),
        ("step 4 loss=0.25, avg loss=0.9", {"loss": 0.25}),
        ("step 10 loss 0.5 (target loss 0.1)", {"loss": 0.5}),
        ("step 4: val_loss 0.5 (best val_loss 0.2)", {"val_loss": 0.5}),
        ("best val loss 0.2 | val loss 0.5", {"val_loss": 0.5}),
        ("step 4: accuracy: 0.5, max accuracy: 0.9", {"accuracy": 0.5}),
        ("INFO loss 0.25 avg loss 0.9", {"loss": 0.25}),
        ("best loss 0.05 current loss 0.25", {"loss": 0.25}),
        ("current loss 0.25 best loss 0.05", {"loss": 0.25}),
        ("loss 0.3, loss 0.25", {"loss": 0.25}),
        ("Avg loss: 0.8", {"loss": 0.8}),
        ("best val loss 0.2", {"val_loss": 0.2}),
    ],
)
def test_the_current_value_of_a_name_counts(line: str, values: dict[str, float]) -> None:
    assert read(line).values == values


def test_values_stand_in_their_order() -> None:
    assert [*read("Steps: 5/10 reward: 3.0").values] == ["steps", "reward"]


def test_a_name_may_be_two_words() -> None:
    assert read("step 3 learning rate: 1e-4").longer == {"learning_rate": 1e-4}
    assert read("Val Average Loss 0.4").longer == {"val_average_loss": 0.4}
    assert read("step 3 loss 0.3 lr 1").longer == {}
    assert read("step 3 loss 0.3 best loss 0.1").longer == {"best_loss": 0.1}


@pytest.mark.parametrize(
    ("line", "of"),
    [
        *(("Val Epoch: 1 [640/10000]\tLoss: 2.3", "val_"), ("step 5 val_loss 0.9 lr 1", "val_")),
        *(("Train: 5/10 [loss=1]", ""), ("step 5: train loss 0.3, val loss 0.4", "")),
        *(("5/10 - loss: 0.3 - val_loss: 0.4", ""), ("step 5 lr 1", "")),
    ],
)
def test_a_line_is_about_some_data(line: str, of: str) -> None:
    assert read(line).of == of


def test_a_line_may_open_an_epoch() -> None:
    assert read("Epoch 1/3").opens_epoch
    assert not read("Epoch 3: val_loss improved from inf to 0.31, saving model").opens_epoch
    assert not read("Epoch [1/3], Step [1/20], Loss: 0.3").opens_epoch


def test_how_many_steps_there_are_may_have_commas_too() -> None:
    assert read("step 1,000/20,000: loss 0.3").total == 20_000
    assert read("1,000/20,000 [00:01<00:05, loss=0.3]").total == 20_000


def test_no_number_is_a_number_too() -> None:
    assert math.isnan(read("step 3 loss nan").values["loss"])
    assert math.isnan(read('{"loss": NaN}').values["loss"])
    lightning = "Epoch 0: 50%|## | 5/10 [00:01<00:01, 5.0it/s, v_num=0, loss=nan.0]"
    assert math.isnan(read(lightning).values["loss"])
    assert read("loss=nan.01").values == read("loss=nan.0.1").values == {}


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("loss", "loss"),
        ("Val/Loss", "val_loss"),
        ("validation-loss", "val_loss"),
        ("training loss", "train_loss"),
        ("Loss/train", "train_loss"),
        ("loss_val", "val_loss"),
        ("Acc@1", "acc_1"),
        ("train", "train"),
    ],
)
def test_names_are_compared_without_their_spelling(name: str, folded: str) -> None:
    assert normalize_name(name) == folded


PIECES = [
    *("loss", " ", ":", "=", "0.3", "/", "10", "epoch", "step", "nan", "1e999", "(", "[", "-"),
    *("\t", "val", "'", "tensor(", "%", "it [", "\x1b[1m", "0", "9" * 400, "\r", "\x08", "\n"),
]


@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_line_can_be_read(line: str) -> None:
    metrics = Metrics(("loss", "val_loss"))
    metrics.add(ONE, line.encode("utf-8", "surrogatepass"))
    metrics.peek(ONE, line.encode("utf-8", "surrogatepass"))


@given(st.floats(allow_nan=False), st.integers(0, 10**9))
def test_what_python_and_json_write_comes_back(value: float, step: int) -> None:
    for line in (f"step {step} loss {value!r}", json.dumps({"step": step, "loss": value})):
        found = read(line)
        assert found.values == {"loss": value}
        assert found.step == step


@pytest.mark.parametrize(
    "line",
    [
        *("a1 " * 3000, "loss" + " " * 9000, "loss:" * 2000, "1/" * 4000, "a.b-" * 2000),
        *("loss[" + "0," * 4000, "loss[0" * 1500, "loss[0" + " " * 9000),
        *("loss tensor" * 800, "loss" + "(" * 9000, f"loss {'1' * 9000}x", "\x1b[1;" * 2000),
    ],
)
def test_a_line_of_any_form_is_read_in_time(line: str) -> None:
    # A pattern that goes back and forth would not be done before the test's own time is up.
    metrics = Metrics(("loss",))
    metrics.add(ONE, (line + " loss").encode() * 2)


@pytest.mark.parametrize(
    "unit",
    [
        *("loss at step 1 ", "loss (for ", "loss (for 1 batch) at step ", "a at step 1,000,000 : "),
        *(
            "[1]\t",
            "] [1",
            "[1] ",
            "20%|",
            "Epoch: 20%",
            "nan.0",
            "loss=nan.0.",
            "best epoch 1 ",
            " ",
            "at step ",
            "1,000",
        ),
    ],
)
@pytest.mark.parametrize("head", ["loss", "loss at step ", "loss (", "loss=nan"])
def test_time_grows_with_a_line_s_length_alone(head: str, unit: str) -> None:
    assert is_linear(lambda size: read(head + unit * (size // len(unit))), 60_000)


@pytest.mark.parametrize("text", ["İNF", "ınf", "İnf", "infınity", "nan٣", "١٢"])
def test_letters_and_digits_of_other_alphabets_are_no_number(text: str) -> None:
    """re.IGNORECASE takes a Turkish İ for an i, and float() does not."""
    assert "loss" not in read(f"step 1/3 loss: {text}").values


def test_lightgbms_data_sets_are_told_apart() -> None:
    found = read("[10]\ttraining's l2: 0.24\tvalid_1's l2: 0.31").values
    assert found == {"train_l2": 0.24, "val_l2": 0.31}
