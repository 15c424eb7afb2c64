"""Cells that train one model on scikit-learn's digits, each replica with its part of them.

Each replica prints its rank, the number of replicas, and the accuracy of the model on all digits.
"""

JAX = """
import jax, os
import jax.numpy as jnp
from jax.experimental.multihost_utils import process_allgather
from sklearn.datasets import load_digits

jax.distributed.initialize()
rank, world = jax.process_index(), jax.process_count()
assert (rank, world) == (int(os.environ["PROCESS_ID"]), int(os.environ["NUM_PROCESSES"]))
x, y = load_digits(return_X_y=True)
x, y = jnp.array(x[rank::world] / 16), jnp.array(y[rank::world])

def loss(w):
    return -jnp.mean(jax.nn.log_softmax(x @ w)[jnp.arange(len(y)), y])

w = jnp.zeros((64, 10))
for step in range(30):
    w -= process_allgather(jax.grad(loss)(w)).mean(0)
hits = process_allgather(jnp.array([jnp.sum((x @ w).argmax(1) == y), len(y)])).sum(0)
print(f"rank {rank} of {world}: accuracy {hits[0] / hits[1]:.4f}")
"""

XGBOOST = """
import os, hashlib
import numpy as np
import xgboost as xgb
from sklearn.datasets import load_digits

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
x, y = load_digits(return_X_y=True)
shard = xgb.DMatrix(x[rank::world], label=y[rank::world])
params = {"objective": "multi:softmax", "num_class": 10, "max_depth": 3, "nthread": 1}
model = xgb.train(params, shard, num_boost_round=5)
hits = float((model.predict(shard) == shard.get_label()).sum())
total = xgb.collective.allreduce(np.array([hits, shard.num_row()]), xgb.collective.Op.SUM)
digest = hashlib.sha256(model.save_raw()).hexdigest()[:12]
here = xgb.collective.get_rank(), xgb.collective.get_world_size()
print(f"rank {here[0]} of {here[1]} is {rank}: accuracy {total[0] / total[1]:.4f}, model {digest}")
"""

PADDLE = """
import paddle
import paddle.distributed as dist
from sklearn.datasets import load_digits

dist.init_parallel_env()
rank, world = dist.get_rank(), dist.get_world_size()
paddle.seed(0)
x, y = load_digits(return_X_y=True)
x = paddle.to_tensor((x[rank::world] / 16).astype("float32"))
y = paddle.to_tensor(y[rank::world])
net = paddle.nn.Linear(64, 10)
model = paddle.DataParallel(net)
optimizer = paddle.optimizer.SGD(0.5, parameters=net.parameters())
for step in range(100):
    loss = paddle.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
hits = paddle.to_tensor([float((net(x).argmax(1) == y).sum()), float(len(y))])
dist.all_reduce(hits)
print(f"rank {rank} of {world}: accuracy {float(hits[0] / hits[1]):.4f}")
"""

MPI = """
import numpy as np
from mpi4py import MPI

try:
    from sklearn.datasets import load_digits
    x, y = load_digits(return_X_y=True)
    x = x / 16
except ImportError:  # images for MPI rarely have it: points around ten centres
    made = np.random.default_rng(0)
    y = made.integers(0, 10, 1800)
    x = made.normal(size=(10, 64))[y] + 3 * made.normal(size=(1800, 64))
comm = MPI.COMM_WORLD
x, y = x[comm.rank :: comm.size], y[comm.rank :: comm.size]
w, wanted = np.zeros((64, 10)), np.eye(10)[y]
for step in range(100):
    p = np.exp(x @ w)
    gradient = x.T @ (p / p.sum(1, keepdims=True) - wanted) / len(x)
    total = np.empty_like(gradient)
    comm.Allreduce(gradient, total)
    w -= 0.5 * total / comm.size
hits = comm.allreduce(int(((x @ w).argmax(1) == y).sum()))
accuracy = hits / comm.allreduce(len(y))
host = MPI.Get_processor_name()
print(f"rank {comm.rank} of {comm.size} on {host}: accuracy {accuracy:.4f}")
"""
