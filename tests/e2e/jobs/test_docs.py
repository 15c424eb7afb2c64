"""Cells of the documentation that are for clusters: the server would take what they make."""

from __future__ import annotations

import pytest

from tests.e2e.jobs.conftest import Team
from tests.integration.docs.blocks import PAGES, Block, read

pytestmark = pytest.mark.timeout(120)
BLOCKS = [block for page in PAGES for block in read(page)]


@pytest.mark.parametrize(
    "block", [one for one in BLOCKS if one.kind == "cluster"], ids=lambda block: block.place
)
def test_the_cluster_would_take_it(team: Team, block: Block) -> None:
    for one in BLOCKS:
        if one.kind == "file" and one.page == block.page:
            (team.folder / one.word).write_text(one.text, encoding="utf-8")
    ended = team.run("%dryrun=server\n" + block.text.replace("%dryrun\n", "\n"))
    assert ended.error is None, ended.error
    assert "kind: TFJob" in ended.display.notices
    assert ended.display.notices.rstrip().endswith("would accept it.")
    assert team.left() == []
