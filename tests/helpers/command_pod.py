"""A folder of this machine in the place of a pod: commands run in it as real processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ciao_kernel.errors import ClusterFault
from ciao_kernel.model.queries import Streams


@dataclass
class Pod:
    """Runs commands in a folder; each connection may be cut after so many bytes of its output."""

    folder: Path
    cuts: list[int] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    damages: bool = False
    before: tuple[str, ...] = ()
    runs: int = 0

    async def execute(self, command: Sequence[str], streams: Streams) -> int:
        self.runs += 1
        room = self.cuts.pop(0) if self.cuts else None
        process = await asyncio.create_subprocess_exec(
            *self.before,
            *command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env={**os.environ, **self.env},
        )
        assert process.stdin
        assert process.stdout
        assert process.stderr

        async def feed() -> None:
            assert process.stdin
            assert streams.input
            try:
                async for data in streams.input:
                    process.stdin.write(data)
                    await process.stdin.drain()
            except ConnectionError:
                pass  # the command has ended
            except Exception:
                process.kill()  # it would wait for the rest
                raise

        feeding = asyncio.ensure_future(feed())
        try:
            while data := await process.stdout.read(1 << 15):
                if self.damages and len(data) > 1000:
                    data, self.damages = data[:-1] + bytes([data[-1] ^ 1]), False
                if room is not None:
                    data, room = data[:room], room - len(data)
                streams.out(data)
                if room is not None and room <= 0:
                    raise ClusterFault("the connection was cut.")
            streams.err(await process.stderr.read())
            return await process.wait()
        finally:
            feeding.cancel()
            (fed,) = await asyncio.gather(feeding, return_exceptions=True)
            process.stdin.close()  # otherwise its pipe outlives the loop
            if process.returncode is None:
                process.kill()
                await process.stdout.read()  # otherwise asyncio waits for its pipe
                await process.wait()
            if isinstance(fed, Exception):
                raise fed
