"""A kernel that helps while a user writes a job cell: completion, explanations, Enter."""

from __future__ import annotations

from typing import Any

from ciao_kernel.jupyter import messages
from ciao_kernel.jupyter.side_requests import AnsweringKernel


class HelpingKernel(AnsweringKernel):
    """ipykernel's kernel with help for headers; IPython helps with all other text."""

    def do_complete(self, code: str, cursor_pos: int | None) -> Any:
        """Complete directives in a header; IPython completes all other text."""
        from ciao_kernel.jupyter import typing_help

        position = len(code) if cursor_pos is None else cursor_pos
        found = typing_help.complete(code, position, self.shell.user_ns)
        if found is None:
            return super().do_complete(code, cursor_pos)
        matches = [(match, "directive") for match in found.matches]
        if found.merge:
            reply = super().do_complete(code, cursor_pos)
            if not matches:
                return reply
            if reply["cursor_start"] == found.start:
                others = [match for match in reply["matches"] if match not in found.matches]
                matches += [(match, "magic") for match in others]
        return messages.completions(matches, found.start, found.end)

    def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()
    ) -> Any:
        """Explain a directive; IPython explains all other names."""
        from ciao_kernel.jupyter import typing_help

        text = typing_help.explain(code, cursor_pos)
        if text is None:
            return super().do_inspect(code, cursor_pos, detail_level, omit_sections)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    def do_is_complete(self, code: str) -> Any:
        """Ask for code if a header has none below it; IPython checks all other cells."""
        from ciao_kernel.jupyter import typing_help

        answer = typing_help.is_complete(code, self.shell.user_ns)
        if isinstance(answer, str):
            return super().do_is_complete(answer)
        return answer
