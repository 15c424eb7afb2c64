"""ciao's appending builder in this process, as a kernel has it, for the benchmarks of images."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.config import Settings
from ciao_kernel.model import BuildSpec, JobSpec, Source, SourceFile
from ciao_kernel.plugins import Build

CELL = """%framework=tensorflow
%worker=2

import tensorflow as tf

STEPS = 0

strategy = tf.distribute.MultiWorkerMirroredStrategy()
(x, y), _ = tf.keras.datasets.mnist.load_data()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
    model.compile("sgd", "mse")
model.fit(x / 255.0, y, steps_per_epoch=STEPS)
"""


def edited(cell: str, number: int) -> str:
    """A cell with one line changed."""
    return cell.replace("STEPS = 0", f"STEPS = {number}", 1)


class Kernel:
    """A kernel whose cells become images.

    Args:
        registry: Host and port; it speaks http.
        repository: Gets the images.
        folder: Of caches; exists.
    """

    def __init__(self, registry: str, repository: str, folder: Path) -> None:
        self.registry, self._folder = registry, folder
        self._settings = Settings(
            storage=folder,
            plain_registries=(registry,),
            registry=f"{registry}/{repository}",
        )
        self.restart()

    def restart(self) -> None:
        """Forget all connections, and what was read."""
        self._builder = AppendBuilder(self._settings)

    async def build(self, base: str, code: str, **wishes: Any) -> float:
        """Build a cell on an image of the registry; returns seconds."""
        source = Source(SourceFile("cell.py", code.encode(), size=len(code)))
        spec = JobSpec("tensorflow", build=BuildSpec(**wishes))
        image = f"{self.registry}/{base}"
        ask = Build(source, spec, "python3", "bench", self._folder, self._folder, image)
        began = time.perf_counter()
        await self._builder.build(ask, lambda _: None)
        return time.perf_counter() - began
