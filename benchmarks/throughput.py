"""Lines a second from replicas to a client, against `cat` of the same programs' pipes.

Every line is counted at the client: shown, or said to be left out. Lost is what is neither.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.figure import Figure
from benchmarks.kernels import started

LINES = 400_000
PROGRAM = """
import sys
lines = LINES
for start in range(0, lines, 100):
    batch = range(start, start + 100)
    sys.stdout.write("".join(f"step {i} loss 0.31 accuracy 0.97\\n" for i in batch))
"""
EVERYTHING = {"CIAO_OUTPUT_RATE": "1e9", "CIAO_OUTPUT_LIMIT": "1e11"}


def measure() -> Iterator[Figure]:
    """1, 8 and 64 replicas; every line shown, and with the usual limit of what is shown."""
    for replicas in (1, 8, 64):
        each = LINES // replicas // 100 * 100
        peer = _cat(replicas, each)
        for what, env in (("all shown", EVERYTHING), ("usual limit", {})):
            speed, shown, left_out = _ciao(replicas, each, env)
            lost = each * replicas - shown - left_out
            yield Figure(
                f"{replicas} replicas, {what}",
                speed,
                "cat",
                peer,
                "lines/s",
                "lost 0",
                lost == 0,
                f"shown {shown:,}, said to be left out {left_out:,}, lost {lost}",
            )


def _ciao(replicas: int, each: int, env: dict[str, str]) -> tuple[float, int, int]:
    texts: list[str] = []

    def hook(message: dict) -> None:  # type: ignore[type-arg]
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"])

    code = f"%framework=tensorflow\n%worker={replicas}\n%lines=all\n" + PROGRAM.replace(
        "LINES", str(each)
    )
    with started("ciao", env) as (_, client, _):
        began = time.perf_counter()
        reply = client.execute_interactive(code, timeout=300, output_hook=hook)
        took = time.perf_counter() - began
    assert reply["content"]["status"] == "ok", reply["content"]
    text = "".join(texts)
    shown = text.count("] \x1b[0mstep ")
    gaps = re.findall(r"… ([\d,]+) lines? (?:are|is) not shown", text)
    total = re.findall(r"([\d,]+) of ([\d,]+) lines are shown", text)
    left_out = sum(int(number.replace(",", "")) for number in gaps)
    if total:
        few, many = (int(number.replace(",", "")) for number in total[-1])
        left_out = many - few
    return each * replicas / took, shown, left_out


def _cat(replicas: int, each: int) -> float:
    """The same programs, each into a `cat` of its own."""
    program = PROGRAM.replace("LINES", str(each))
    began = time.perf_counter()
    pairs = []
    for _ in range(replicas):
        writer = subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE)
        pairs.append(
            (writer, subprocess.Popen(["cat"], stdin=writer.stdout, stdout=subprocess.DEVNULL))
        )
        assert writer.stdout is not None
        writer.stdout.close()
    for writer, reader in pairs:
        writer.wait()
        reader.wait()
    return each * replicas / (time.perf_counter() - began)
