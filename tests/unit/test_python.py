"""Plain Python: the variables of each replica; the operator has no kind for it."""

from __future__ import annotations

from ciao_kernel.model import Address, Replica
from ciao_kernel.plugins import OperatorKind
from tests.unit.test_frameworks import spec


def test_each_replica_knows_its_rank_and_all_hosts() -> None:
    framework, job = spec("%framework=python %worker=11")
    addresses = {one: Address("127.0.0.1", 20000 + one.index) for one in job.replicas()}
    assert framework.environment(job, Replica("worker", 10), addresses) == {
        "CIAO_ROLE": "worker",
        "CIAO_INDEX": "10",
        "CIAO_HOSTS": ",".join(f"127.0.0.1:{20000 + index}" for index in range(11)),
        "RANK": "10",
        "LOCAL_RANK": "0",
        "NODE_RANK": "10",
        "WORLD_SIZE": "11",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "20000",
    }
    assert framework.decider(job) is None


def test_a_header_without_workers_means_one() -> None:
    _, job = spec("%framework=python")
    assert job.replicas() == (Replica("worker", 0),)


def test_the_operator_has_no_kind_for_it() -> None:
    framework, _ = spec("%framework=python")
    assert not isinstance(framework, OperatorKind)
