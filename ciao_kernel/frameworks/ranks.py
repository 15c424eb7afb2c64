"""The variables of replicas that connect by themselves: their rank and the hosts of all."""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.model import Address, Replica


def variables(replica: Replica, addresses: Mapping[Replica, Address]) -> dict[str, str]:
    """Return the rank, the number of replicas and their hosts, in the order of ranks.

    ``CIAO_HOSTS`` has a port for each host: on one machine all hosts are equal.

    Args:
        replica: The replica.
        addresses: Address of each replica of the job.
    """
    ranks = sorted(addresses)
    first = addresses[ranks[0]]
    return {
        "CIAO_ROLE": replica.role,
        "CIAO_INDEX": str(replica.index),
        "CIAO_HOSTS": ",".join(str(addresses[one]) for one in ranks),
        "RANK": str(ranks.index(replica)),
        "LOCAL_RANK": "0",
        "NODE_RANK": str(ranks.index(replica)),
        "WORLD_SIZE": str(len(ranks)),
        "MASTER_ADDR": first.host,
        "MASTER_PORT": str(first.port),
    }
