"""Progress of a training, as a text with a bar of characters."""

from __future__ import annotations

import re

from ciao_kernel.model.progress import Done
from ciao_kernel.model.times import span

_BAR = 12
"""Characters of the bar."""
BAR = re.compile(rf"[━─]{{{_BAR}}} ")
"""The bar in a text, with the blank behind it."""


def progress_text(done: Done) -> str:
    """Return how far a training is: ``━━━━━─────── 45 % (epoch 3/5, step 25/100), ≈ 3m left``."""
    filled = int(done.share * _BAR)
    counted = [("epoch", done.epoch, done.epochs), ("step", done.step, done.steps)]
    where = [f"{name} {now:,}/{of:,}" for name, now, of in counted if now is not None and of]
    part = f" of epoch {done.epoch}" if done.of_epoch and done.epoch is not None else ""
    part = part or (" of a loop" if done.of_epoch else "")
    bar = f"{'━' * filled}{'─' * (_BAR - filled)} {int(done.share * 100)} %{part}"
    text = f"{bar} ({', '.join(where)})" if where else bar
    return text if done.left is None else f"{text}, ≈ {span(done.left)} left"
