"""pdb whose input and output are a wire (:mod:`.debug_wire`), for a process of a replica.

This file is in replicas as ``ciao_debug_prompt``; :mod:`.debugger` loads it at the first
breakpoint. Standard library, from Python 3.8 on.
"""

from __future__ import annotations

import pdb
import sys
from collections.abc import Callable, Sequence
from typing import Any


class Debugger(pdb.Pdb):
    """pdb at a wire, which ends when the program goes on.

    Args:
        wire: The wire.
        where: Returns the place of a frame.
        detach: Lets the program pass later breakpoints over.
        skip: Names of ciao's modules, which it does not step into.
    """

    def __init__(
        self,
        wire: Any,
        where: Callable[[Any], str],
        detach: Callable[[], None],
        skip: Sequence[str],
    ) -> None:
        self.wire, self.place = wire, ""
        self._place_of, self._pass_over = where, detach
        skip = ["bdb", "pdb", "cmd", *skip]
        super().__init__(stdin=wire, stdout=wire, nosigint=True, skip=skip)

    def interaction(self, frame: Any, *more: Any, **options: Any) -> Any:
        """Open the prompt of a frame; wait for a front end."""
        if frame is not None:
            self.place = self._place_of(frame)
        try:
            self.wire.open(self.place)
            return super().interaction(frame, *more, **options)
        except self.wire.over:
            if self.wire.failed:
                self.wire.until = 0.0  # a wait may end a moment before
            else:
                self._leave()

    def get_stack(self, frame: Any, trace: Any) -> Any:
        """Return the stack and the index of the current frame, without ciao's call of the program.

        Args:
            frame: The innermost frame; None if there is only a traceback.
            trace: The traceback, or None.
        """
        stack, index = super().get_stack(frame, trace)
        ours = 0
        while ours < index and self.is_skipped_module(_module(stack[ours][0])):
            ours += 1
        return stack[ours:], index - ours

    def _leave(self) -> None:
        """Let the program go on, because nobody is there."""
        self.forget()
        self.clear_all_breaks()
        self.set_continue()
        text = f"Nobody was at the prompt of {self.place} for {self.wire.alone:g} s: it goes on."
        sys.stderr.write(f"{text}\n")
        self.wire.close("goes on")

    def do_continue(self, arg: str) -> Any:
        """Continue, and take leave of the front end."""
        result = super().do_continue(arg)
        self.wire.close("ends" if self.wire.failed else "goes on")
        return result

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> Any:
        """End the program, and take leave of the front end."""
        result = super().do_quit(arg)
        self.wire.close("ends" if self.wire.failed else "ends, as q wants")
        return result

    do_q = do_exit = do_quit

    def do_detach(self, arg: str) -> bool:
        """Continue, and stop at no further breakpoint."""
        self._pass_over()
        self.clear_all_breaks()
        self.set_continue()
        end = "goes on, and passes later breakpoints over"
        self.wire.close("ends" if self.wire.failed else end)
        return True

    def do_run(self, arg: str) -> None:
        """Refuse: a job is started again from outside."""
        self.error("run is not available here: rerun starts the job again")

    do_restart = do_run

    def do_interact(self, arg: str) -> None:
        """Refuse: the console would read another input."""
        self.error("interact is not available here: write ! before a line of Python")


def _module(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))
