"""Programs that hang, each in its own way, and what the picture of each has to name."""

from __future__ import annotations

LOCKS = """
import threading

first, second = threading.Lock(), threading.Lock()
held = threading.Barrier(2)

def lend():
    with first:
        held.wait()
        with second:
            pass

def borrow():
    with second:
        held.wait()
        with first:
            pass

threads = [threading.Thread(target=one, name=one.__name__) for one in (lend, borrow)]
for one in threads:
    one.start()
print("begins", flush=True)
for one in threads:
    one.join()
"""
"""Two threads that wait for each other's lock."""

LOADER = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

def loader():
    for number in range(10**9):
        while number == 3 and rank == 1:
            time.sleep(0.01)
        yield torch.ones(8) * number

def average(batch):
    dist.all_reduce(batch)

for batch in loader():
    average(batch)
    print("step", int(batch[0]), flush=True)
"""
"""A rank that stays in its loader, while the others wait for it."""

SLOW = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

def loader():
    for number in range(10**9):
        time.sleep(0.2 if rank == 1 else 0.02)
        yield torch.ones(8) * number

def average(batch):
    dist.all_reduce(batch)

for batch in loader():
    average(batch)
    print("step", int(batch[0]), flush=True)
"""
"""A rank that is slower than the others, which all make as many steps as it."""

MISMATCH = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, value = dist.get_rank(), torch.ones(4)
dist.all_reduce(value)
print("begins", flush=True)
if rank == 0:
    dist.all_reduce(value)
    dist.all_reduce(value)
else:
    dist.all_reduce(value)
    dist.barrier()
    dist.recv(value, 0)
print("never")
dist.barrier()
"""
"""Two ranks that do not call the same collectives."""

SKIPS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, value = dist.get_rank(), torch.ones(4)
dist.all_reduce(value)
print("begins", flush=True)
if rank != 1:
    dist.all_reduce(value)
dist.barrier()
print("never")
"""
"""A rank that leaves out an all_reduce of the others."""

RECEIVE = """
from mpi4py import MPI

comm = MPI.COMM_WORLD
print("begins", flush=True)
comm.recv(source=1 - comm.rank)
"""
"""Two ranks that wait for a message, and send none."""

NO_PS = """
import json, os, time
import tensorflow as tf

if os.environ.get("CIAO_REPLICA") == "ps-0" or '"ps", "index": 0' in os.environ["TF_CONFIG"]:
    time.sleep(10**6)  # it never starts its server
config = json.loads(os.environ["TF_CONFIG"])
server = tf.distribute.Server(
    tf.train.ClusterSpec(config["cluster"]), config["task"]["type"], config["task"]["index"])
print("begins", flush=True)
with tf.compat.v1.Session(server.target) as session:
    session.run(tf.compat.v1.constant(1))
"""
"""A parameter server that never starts, and workers whose session waits for it."""


def line(program: str, text: str, header: str) -> int:
    """Return the number of the line of a cell that contains a text.

    Args:
        program: One of the programs above.
        text: Part of the line.
        header: The header in front of it.
    """
    lines = (header + program).split("\n")
    (found,) = (number for number, one in enumerate(lines, 1) if text in one)
    return found
