"""A program that continues at its checkpoint, and loses a process and a torchrun on its way."""

TRAINS = """
import os, signal, time
import torch
import torch.distributed as dist

folder = os.environ.get("CHECKPOINTS", ".")
kept = f"{folder}/step"

def once(name):
    try:
        os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

dist.init_process_group("gloo")
rank, world, me = dist.get_rank(), dist.get_world_size(), os.environ["CIAO_REPLICA"]
step = int(open(kept).read()) if os.path.exists(kept) else 0
first = torch.tensor([step])
dist.broadcast(first, 0)
print(f"{me} begins at {int(first)} of {world}")
for step in range(int(first) + 1, STEPS + 1):
    one = torch.ones(1)
    dist.all_reduce(one)
    if rank == 0:
        with open(kept + ".new", "w") as file:
            file.write(str(step))
        os.replace(kept + ".new", kept)
    print(f"{me} step {step}", flush=True)
    if me == "worker-1" and step == 5 and once("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if me == LOST and step == 10 and once("lost"):
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)  # it ends with its torchrun
    while step == WAITS and int(first) < WAITS - 1:
        dist.all_reduce(one)  # until a replica is lost
        time.sleep(0.05)
dist.destroy_process_group()
print(f"{me} has trained")
"""


def trains(*, lost: str = "", waits: int = 0, steps: int = 20) -> str:
    """Return the program.

    Args:
        lost: The replica whose torchrun is killed at step 10.
        waits: The step at which it waits for the loss of a replica.
        steps: The last step.
    """
    named = f"STEPS, LOST, WAITS = {steps}, {lost!r}, {waits}\n"
    return named + TRAINS


def tries(log: bytes, replica: str) -> list[list[int]]:
    """Return the steps of each try of a replica, and check that no other lines are among them."""
    found: list[list[int]] = []
    for line in log.decode().splitlines():
        if line.startswith(f"{replica} begins at "):
            found.append([])
        elif line.startswith(f"{replica} step "):
            found[-1].append(int(line.split()[-1]))
    return found
