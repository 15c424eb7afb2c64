"""Job cells that IPython runs: of ``%run NOTEBOOK``, ``%rerun``, a macro and ``run_cell(text)``.

The kernel sees only the cell around them, and IPython would take the first directive for a magic of
that name. They run as ``%%ciao`` does in another kernel: the cell around them waits for the job.
"""

from __future__ import annotations

from collections.abc import Callable

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.macro import Macro

from ciao_kernel.errors import CiaoError


def let_run(shell: InteractiveShell) -> Callable[[str], None]:
    """Let a shell run job cells; the kernel calls this once.

    Returns:
        Takes the text of a cell that is no job: the kernel has scanned it, and it may be long.
    """
    plain = ""

    def know_plain(text: str) -> None:
        nonlocal plain
        plain = text

    def transform(lines: list[str]) -> list[str]:
        text = "".join(lines)
        macro = shell.user_ns.get(text.strip())
        of_macro = isinstance(macro, Macro)
        text = macro.value if of_macro else text
        if "%" not in text or text in (plain, f"{plain}\n"):
            return lines
        from ciao_kernel.jupyter import cells, questions

        # IPython reads a macro as Python alone: a command in it would be an error.
        asked = cells.command(text) if of_macro else questions.of_directive(text)
        if asked is not None:
            return [f"get_ipython().run_line_magic('ciao', {asked!r})\n"]
        # The text of a cell magic, such as that of %%ciao, is IPython's to pass on.
        if (text.startswith("%%") and not of_macro) or cells.scan_job(text) is None:
            return lines
        return [f"get_ipython().run_job_cell({text!r})\n"]

    def run_job_cell(text: str) -> None:
        from ciao_kernel.jupyter import cells, extension

        cell = cells.scan_job(text)
        assert cell is not None  # the transformer has found it
        try:
            extension.run_job(shell, cell)
        except CiaoError as error:
            cells.hide_frames(error)
            raise

    shell.run_job_cell = run_job_cell  # type: ignore[attr-defined]
    # Before all others, which remove blank lines: errors name the line of the cell.
    shell.input_transformers_cleanup.insert(0, transform)
    return know_plain
