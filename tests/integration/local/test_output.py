"""What replicas write arrives whole, in order, and once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.helpers.jobs import Place, Recorder, wait


def test_all_lines_of_all_replicas_arrive_once_and_in_order(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        %worker=4
        %ps=1
        import os, sys, time
        name = os.environ["CIAO_REPLICA"]
        for number in range(20_000):
            stream = sys.stderr if number % 7 == 0 else sys.stdout
            stream.write(f"{name} {number} {'x' * (number % 50)}\\n")
            if number % 5000 == 0:
                print()  # an empty line is a line
        open(f"done-{name}", "w").close()
        while name == "worker-0" and sum(f.startswith("done-") for f in os.listdir()) < 5:
            time.sleep(0.01)
        """
    )
    assert ended.error is None
    for name in ("worker-0", "worker-1", "worker-2", "worker-3", "ps-0"):
        expected = []
        for number in range(20_000):
            expected.append(f"{name} {number} {'x' * (number % 50)}")
            expected += [""] if number % 5000 == 0 else []
        shown = ended.display.data(name)
        assert shown.decode().split("\n")[:-1] == expected
        assert ended.display.lines(name) == len(expected)
        assert shown == ended.log(name)


def test_a_last_line_without_an_end_is_a_line(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        print("first")
        print("", flush=True)
        print("the end", end="")
        """
    )
    assert ended.display.data("worker-0") == b"first\n\nthe end"
    assert ended.display.lines("worker-0") == 3


def test_both_streams_keep_their_order(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        import os, sys
        for number in range(200):
            print("out", number)
            sys.stderr.write(f"err {number}\\n")
            os.write(1, b"raw %d\\n" % number)
        """
    )
    expected = "".join(f"out {n}\nerr {n}\nraw {n}\n" for n in range(200))
    assert ended.display.data("worker-0").decode() == expected


def test_lines_of_processes_that_a_program_forks_stay_whole(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=python
        import multiprocessing, sys
        def talk(name):
            for number in range(500):
                print(name, "says", number, "x" * 60)
                print(name, "warns", number, "x" * 60, file=sys.stderr)
        many = [multiprocessing.get_context("fork").Process(target=talk, args=(name,))
                for name in ("one", "two")]
        for process in many:
            process.start()
        talk("parent")
        for process in many:
            process.join()
        """
    )
    lines = ended.log("worker-0").decode().splitlines()
    for name in ("one", "two", "parent"):
        for word in ("says", "warns"):
            said = [line for line in lines if line.startswith(f"{name} {word} ")]
            assert said == [f"{name} {word} {number} {'x' * 60}" for number in range(500)]
    assert len(lines) == 3000


def test_a_child_of_a_replica_writes_into_the_same_log(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        import subprocess, sys
        print("before")
        subprocess.run([sys.executable, "-c", "print('child')"], check=True)
        print("after")
        """
    )
    assert ended.display.data("worker-0") == b"before\nchild\nafter\n"


def test_a_progress_bar_is_one_line_with_a_live_tail(jobs: Place) -> None:
    text = """
        %framework=tensorflow
        import itertools, os, sys, time
        for step in itertools.count():
            sys.stdout.write(f"\\r{step % 100}%")
            sys.stdout.flush()
            time.sleep(0.01)
            if os.path.exists("seen"):
                break
        sys.stdout.write("\\r100%\\n")
        """

    async def main() -> Recorder:
        display = Recorder()
        work = asyncio.ensure_future(jobs.ended(text, jobs.session(), display))
        await wait(lambda: len(display.tails["worker-0"]) > 3)
        assert display.job is not None
        (Path(display.job.place) / "seen").touch()
        assert (await work).error is None
        return display

    display = asyncio.run(main())
    assert display.lines("worker-0") == 1
    assert display.data("worker-0").endswith(b"\r100%\n")


def test_a_bar_of_twenty_megabytes_stays_small(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        import sys
        for step in range(100_000):
            sys.stdout.buffer.write(b"\\r%06d %b" % (step, b"#" * 200))
        sys.stdout.buffer.write(b"\\n")
        """
    )
    assert ended.display.lines("worker-0") == 1
    shown = ended.display.data("worker-0")
    assert shown.endswith(b"\r099999 " + b"#" * 200 + b"\n")
    assert len(shown) < 1_000_000
    assert max(map(len, ended.display.tails["worker-0"])) <= 4096


def test_bytes_pass_as_they_are(jobs: Place) -> None:
    data = "dos\r\n\x1b[31mred\x1b[0m\n\x1b[2J\x07ü漢🙂\n".encode() + b"\xff\xfe broken\n\x00\n"
    jobs.write("data.bin", data)
    ended = jobs.run(
        """
        %framework=tensorflow
        %files=data.bin
        import sys
        sys.stdout.buffer.write(open("data.bin", "rb").read())
        """
    )
    assert ended.display.data("worker-0") == data
    assert ended.display.lines("worker-0") == 5


def test_a_line_of_a_megabyte_arrives_whole(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        print("a" * 1_000_000)
        print("b" * 3_000_000)
        print("end")
        """
    )
    expected = b"a" * 1_000_000 + b"\n" + b"b" * 3_000_000 + b"\nend\n"
    assert ended.display.data("worker-0") == expected
    assert ended.display.lines("worker-0") == 3


def test_a_line_without_end_does_not_fill_the_memory(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        import sys
        for _ in range(20):
            sys.stdout.write("z" * 1_000_000)
        """
    )
    shown = ended.display.data("worker-0")
    assert shown.count(b"z") == 20_000_000
    assert ended.display.lines("worker-0") == 2  # cut once, at 16 MiB
    assert len(ended.log("worker-0")) == 20_000_000


def test_lines_arrive_while_the_job_runs(jobs: Place) -> None:
    async def main() -> None:
        display = Recorder()
        work = asyncio.ensure_future(
            jobs.ended(
                """
                %framework=tensorflow
                import os, time
                print("first")
                print("half a line", end="")
                while not os.path.exists("go"):
                    time.sleep(0.01)
                print(" and the rest")
                """,
                jobs.session(),
                display,
            )
        )
        await display.until("first")
        await wait(lambda: b"half a line" in display.tails["worker-0"])
        assert display.job is not None
        (Path(display.job.place) / "go").touch()
        assert (await work).error is None
        assert display.data("worker-0") == b"first\nhalf a line and the rest\n"

    asyncio.run(main())


def test_a_log_that_is_truncated_goes_on_with_a_word(jobs: Place) -> None:
    text = """
        %framework=tensorflow
        import os, time
        def until(name):
            while not os.path.exists(name): time.sleep(0.01)
        print("before " * 1000)
        until("read")
        os.truncate("../logs/worker-0.log", 0)
        until("told")
        print("after")
        """

    async def main() -> None:
        display = Recorder()
        work = asyncio.ensure_future(jobs.ended(text, jobs.session(), display))
        await display.until("before")
        assert display.job is not None
        (Path(display.job.place) / "read").touch()
        await wait(lambda: "truncated" in display.notices)
        (Path(display.job.place) / "told").touch()
        assert (await work).error is None
        assert display.data("worker-0").endswith(b"after\n")

    asyncio.run(main())
