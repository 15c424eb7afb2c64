"""Cells that train as usual: lines while they train, none while they validate, then lines again.

Each reads two variables: ``STEPS``, the number of steps before and after the validation, of half a
second each, and ``PAUSE``, the seconds of the validation. Nothing is written before the framework
has done its first step, which may take long.
"""

KERAS = """
%framework=tensorflow
%worker=2
import os, time

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
import keras
import numpy as np

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.06)

def held_out():
    until = time.monotonic() + float(os.environ["PAUSE"])
    while time.monotonic() < until:
        time.sleep(0.1)
        yield x[:32], y[:32]

x = np.random.default_rng(0).random((256, 8), "float32")
y = x.sum(1)
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")

def train(epochs, verbose):
    model.fit(x, y, epochs=epochs, batch_size=32, verbose=verbose, callbacks=[Slow()])

train(1, 0)
train(int(os.environ["STEPS"]), 2)
print("validated", model.evaluate(held_out(), verbose=0))
train(int(os.environ["STEPS"]), 2)
model.save("model.keras")
"""

PARAMETER_SERVER = """
%framework=tensorflow
%ps=1
%worker=1
import json, os, time

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], tf.train.ClusterSpec(config["cluster"])
server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
if task["type"] == "ps":
    server.join()

data = np.random.default_rng(0).random((64, 8))
with tf.device(tf.train.replica_device_setter(cluster=cluster)):
    x = tf.placeholder(tf.float32, [None, 8])
    weights = tf.get_variable("weights", [8, 1])
    loss = tf.reduce_mean((x @ weights - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)

def train(session):
    for number in range(int(os.environ["STEPS"])):
        value, _ = session.run([loss, step], {x: data})
        print("step", number, "loss", value, flush=True)
        time.sleep(0.5)

def validate(session):
    until = time.monotonic() + float(os.environ["PAUSE"])
    while time.monotonic() < until:
        session.run(loss, {x: data})
        time.sleep(0.1)

with tf.Session(server.target) as session:
    session.run(tf.global_variables_initializer())
    session.run([loss, step], {x: data})
    train(session)
    validate(session)
    train(session)
"""

TORCH = """
%framework=pytorch
%master=1
%worker=1
import os, time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
x = torch.rand(256, 8)
y = x.sum(1, keepdim=True)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def one_step():
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()

def train():
    for step in range(int(os.environ["STEPS"])):
        print("step", step, "loss", one_step(), flush=True)
        time.sleep(0.5)

@torch.no_grad()
def validate():
    until = time.monotonic() + float(os.environ["PAUSE"])
    while time.monotonic() < until:
        model.module(x)
        time.sleep(0.1)

one_step()
train()
if dist.get_rank() == 0:
    validate()
dist.barrier()  # the others wait here for the validation
train()
dist.barrier()
dist.destroy_process_group()
"""

JAX = """
%framework=jax
%worker=2
import os, time

import jax
import jax.numpy as jnp
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
x = jax.random.uniform(jax.random.key(jax.process_index()), (256, 8))
y = x.sum(1)

def loss(w):
    return jnp.mean((x @ w - y) ** 2)

def one_step(w):
    return w - 0.1 * process_allgather(jax.grad(loss)(w)).mean(0)

def train(w):
    for step in range(int(os.environ["STEPS"])):
        w = one_step(w)
        print("step", step, "loss", float(loss(w)), flush=True)
        time.sleep(0.5)
    return w

def validate(w):
    until = time.monotonic() + float(os.environ["PAUSE"])
    while time.monotonic() < until:
        loss(w).block_until_ready()
        time.sleep(0.1)

w = one_step(jnp.zeros(8))
float(loss(w))
w = train(w)
validate(w)
w = train(w)
process_allgather(w)
"""

XGBOOST = """
%framework=xgboost
%master=1
%worker=1
import os, time

import numpy as np
import xgboost as xgb

x = np.random.default_rng(int(os.environ["RANK"])).random((256, 8))
part = xgb.DMatrix(x, label=x.sum(1))
options = {"max_depth": 2, "nthread": 1}

class Slow(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        time.sleep(0.5)
        return False

def train(model):
    rounds = int(os.environ["STEPS"])
    return xgb.train(
        options, part, rounds, evals=[(part, "train")], callbacks=[Slow()], xgb_model=model)

def validate(model):
    until = time.monotonic() + float(os.environ["PAUSE"])
    while time.monotonic() < until:
        model.predict(part)
        time.sleep(0.1)

model = train(None)
validate(model)
train(model)
"""

MPI = """
%framework=mpi
%worker=2
import os, time

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
x = np.random.default_rng(comm.rank).random((256, 8))
y = x.sum(1)
w = np.zeros(8)

def train():
    global w
    for step in range(int(os.environ["STEPS"])):
        w = w - 0.1 * comm.allreduce(x.T @ (x @ w - y) / len(x)) / comm.size
        print("step", step, "loss", ((x @ w - y) ** 2).mean(), flush=True)
        time.sleep(0.5)

def validate():
    until = time.monotonic() + float(os.environ["PAUSE"])
    while time.monotonic() < until:
        x @ w
        time.sleep(0.1)

train()
validate()
train()
"""

PYTHON = """
%framework=python
%worker=2
import os, time

def train():
    steps = int(os.environ["STEPS"])
    for step in range(1, steps + 1):
        print(f"step {step}/{steps}", flush=True)
        time.sleep(0.5)

def validate():
    until = time.monotonic() + float(os.environ["PAUSE"])
    while time.monotonic() < until:
        sum(number * number for number in range(10_000))
        time.sleep(0.1)

train()
validate()
train()
"""

CELLS = {
    "keras": ("keras", KERAS),
    "ps": ("tensorflow", PARAMETER_SERVER),
    "torch": ("torch", TORCH),
    "jax": ("jax", JAX),
    "xgboost": ("xgboost", XGBOOST),
    "mpi": ("mpi4py", MPI),
    "python": ("sys", PYTHON),
}
"""Name of a training → the module that it needs, and its cell."""


def cell(name: str, steps: int, pause: float) -> str:
    """Return the cell of a training.

    Args:
        name: Of CELLS; the job has it too.
        steps: Steps before and after the validation.
        pause: Seconds of the validation.
    """
    first, _, rest = CELLS[name][1].lstrip().partition("\n")
    return f"{first}\n%name={name}\n%envvar=STEPS={steps} PAUSE={pause:.1f}\n{rest}"
