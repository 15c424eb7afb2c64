"""Lightning and the Trainer of Hugging Face: the cells of docs/recipes.md and docs/surviving.md.

%packages brings them to the interpreter of the tests. Its PyTorch has to suffice: with another one
an environment would have several gigabytes.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.helpers import pip_index
from tests.helpers.jobs import Ended, Place
from tests.integration.docs import blocks

pytestmark = [
    pytest.mark.second("packages"),
    pytest.mark.index,
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]
PAGES = blocks.ROOT / "docs"
_TOLD = re.compile(r"^(?:epoch|goes on from|steps) .*$", re.MULTILINE)


@pytest.fixture(scope="session")
def index() -> None:
    pip_index.skip_unless_reached()


@pytest.fixture
def one_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip fails rather than bring a second PyTorch."""
    pytest.importorskip("torch")
    pins = tmp_path / "pins.txt"
    pins.write_text(f"torch=={version('torch')}\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(pins))


def cell(page: str, library: str) -> str:
    """The one cell of a page that imports a library and is left to this file."""
    texts = (one.text for one in blocks.read(PAGES / page) if one.kind == "by")
    (found,) = (text for text in texts if re.search(rf"^(import|from) {library}\b", text, re.M))
    return found


def told(ended: Ended) -> list[str]:
    assert ended.error is None, ended.error
    return _TOLD.findall(ended.display.data("master-0").decode())


@pytest.mark.usefixtures("index", "one_torch")
@pytest.mark.parametrize(
    ("library", "first", "second"),
    [
        ("lightning", ["epoch 1", "epoch 2"], ["epoch 3", "epoch 4"]),
        (
            "transformers",
            ["goes on from None", "steps 4"],
            ["goes on from checkpoint-4", "steps 8"],
        ),
    ],
    ids=["lightning", "transformers"],
)
def test_its_cells_train_and_go_on_from_their_checkpoint(
    jobs: Place, library: str, first: list[str], second: list[str]
) -> None:
    assert jobs.run(cell("recipes.md", library)).error is None
    text = cell("surviving.md", library)
    assert told(jobs.run(text)) == first
    longer = re.sub(r"^%args=(\d)$", lambda found: f"%args={2 * int(found[1])}", text, flags=re.M)
    assert longer != text
    assert told(jobs.run(longer)) == second
    (packages,) = {one.parent for one in jobs.storage.rglob(f"site-packages/{library}")}
    assert not (packages / "torch").exists()
