"""How far the training of a TrainJob is, as its program has told Trainer.

A program reports it to a server of Trainer, which writes it to ``status.trainerStatus``
(https://github.com/kubeflow/trainer, KEP-2779, since 2.2 by the feature gate ``TrainJobStatus``).
The Trainer of Hugging Face does so by itself.
"""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.object_fields import get, number
from ciao_kernel.model import Manifest
from ciao_kernel.model.progress import Done

_LONGEST = 10**9
"""Seconds: what is longer is no estimate."""


def told(item: Manifest) -> Done | None:
    """Return how far the training of a job is; None if its object does not tell.

    Args:
        item: The job's object, of any kind.
    """
    share = number(get(item, "status", "trainerStatus", "progressPercentage"), 100)
    if share is None:
        return None
    left = number(get(item, "status", "trainerStatus", "estimatedRemainingSeconds"), _LONGEST)
    return Done(share / 100, left)
