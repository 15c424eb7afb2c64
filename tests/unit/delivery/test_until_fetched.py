"""How long files are kept for a fetch after the program's end."""

from __future__ import annotations

import pytest

from ciao_kernel.delivery.output.output_keeper.until_fetched import awaited_since, kept_until

END = 1000.0


@pytest.mark.parametrize(
    ("patience", "contact", "until"),
    [
        (60.0, 0.0, END + 60),  # nobody came
        (60.0, END - 5, END + 60),  # while the program ran
        (60.0, END + 1, END + 60),  # a fetch that was cut may begin again as long as any other
        (60.0, END + 300, END + 320),  # a long fetch that goes on
        (5.0, END + 30, END + 35),
    ],
)
def test_a_contact_makes_the_time_no_shorter(patience: float, contact: float, until: float) -> None:
    assert kept_until(END, patience, contact) == until


@pytest.mark.parametrize(("patience", "since"), [(600.0, END - 30), (5.0, END - 5)])
def test_a_fetch_that_was_cut_has_the_time_of_its_tries(patience: float, since: float) -> None:
    assert awaited_since(END, patience) == since
