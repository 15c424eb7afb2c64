"""Jobs of plain Python on this machine: replicas that connect by themselves."""

from __future__ import annotations

from tests.helpers.jobs import Place

RING = """
import os, socket, sys

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
hosts = [one.rpartition(":") for one in os.environ["CIAO_HOSTS"].split(",")]
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
assert (hosts[0][0], int(hosts[0][2])) == address
mine = socket.create_server((hosts[rank][0], int(hosts[rank][2])))
host, _, port = hosts[(rank + 1) % world]
while True:
    try:
        right = socket.create_connection((host, int(port)))
        break
    except ConnectionRefusedError:
        continue
left, _ = mine.accept()
right.sendall(bytes([rank]))
print(os.environ["CIAO_REPLICA"], "hears", left.recv(1)[0], os.environ["LOCAL_RANK"])
assert os.environ["CIAO_REPLICA"] == os.environ["CIAO_ROLE"] + "-" + os.environ["CIAO_INDEX"]
"""


def test_replicas_find_each_other_by_their_ranks(jobs: Place) -> None:
    ended = jobs.run(f"%framework=python\n%worker=3\n{RING}")
    assert ended.error is None, ended.error
    said = [ended.log(f"worker-{index}") for index in range(3)]
    assert said == [f"worker-{one} hears {(one - 1) % 3} 0\n".encode() for one in range(3)]
