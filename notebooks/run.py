"""Run a notebook through a real kernel and print what its cells show, while they show it.

    python notebooks/run.py notebooks/quickstart.ipynb

Text streams appear as they arrive. A display that is updated in place (the table of a job)
is printed once, in its last state, when its cell ends: a terminal that scrolls has no place
to update. The notebook is not changed unless --inplace is given. Exit code: 0 if every cell
succeeded, 1 if one failed or the kernel died, 2 for wrong arguments, 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def show(text: str) -> None:
    """Write to the terminal now; a file or a pipe gets no colour codes."""
    sys.stdout.write(text if sys.stdout.isatty() else ANSI.sub("", text))
    sys.stdout.flush()


def plain(data: dict[str, Any]) -> str:
    """Return the plain text of a mime bundle, ending in a newline."""
    return data.get("text/plain", f"<{', '.join(data)}>").rstrip("\n") + "\n"


class LiveClient(NotebookClient):
    """A NotebookClient that prints outputs as they arrive."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.displays: dict[str, dict[str, Any]] = {}
        self.on_cell_execute = self.show_source
        self.on_cell_executed = self.show_displays  # on_cell_complete comes too early, at the start

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        # Taken before super(), which turns update_display_data into display_data.
        kind, content = msg["msg_type"], msg["content"]
        if kind == "stream":
            show(content["text"])
        elif kind == "error":
            show("\n".join(content["traceback"]).rstrip("\n") + "\n")
        elif kind in {"display_data", "execute_result", "update_display_data"}:
            display_id = (content.get("transient") or {}).get("display_id")
            if display_id:
                self.displays[display_id] = content["data"]
            else:
                show(plain(content["data"]))
        return super().process_message(msg, cell, cell_index)

    def show_source(self, cell: Any, cell_index: int) -> None:
        lines = "\n".join(f"│ {line}".rstrip() for line in cell.source.splitlines())
        show(f"\n┌─ cell {cell_index + 1} of {len(self.nb.cells)}\n{lines}\n└─\n")

    def show_displays(self, **_: Any) -> None:
        for data in self.displays.values():
            show(plain(data))
        self.displays.clear()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--kernel", default="ciao", help="name of the kernel (default: ciao)")
    parser.add_argument("--timeout", type=int, help="most seconds for one cell (default: none)")
    parser.add_argument("--inplace", action="store_true", help="save the outputs in the notebook")
    options = parser.parse_args()
    path: Path = options.notebook
    if not path.is_file():
        parser.error(f"there is no file {path}")

    notebook = nbformat.read(path, as_version=4)
    client = LiveClient(
        notebook,
        timeout=options.timeout,
        kernel_name=options.kernel,
        # Cells name files beside the notebook, as they do in JupyterLab.
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:  # the cell's own traceback is already on the screen
        print(f"{path}: a cell failed ({error.ename})", file=sys.stderr)
        return 1
    except (CellTimeoutError, DeadKernelError, NoSuchKernel) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    except AssertionError:  # nbclient answers Ctrl-C by ending the kernel, and then misses it
        print(f"{path}: interrupted", file=sys.stderr)
        return 130
    finally:
        client.show_displays()  # of a cell that did not reach its end
    if options.inplace:
        nbformat.write(notebook, path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
