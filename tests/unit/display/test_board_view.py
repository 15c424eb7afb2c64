"""TensorBoard in a notebook and as text."""

from __future__ import annotations

from ciao_kernel.display import board_view
from ciao_kernel.model import TensorBoard

ADDRESS = "http://127.0.0.1:6006/"


def test_a_link_where_no_page_is_known() -> None:
    event = TensorBoard(("one", "two"), ADDRESS)
    assert board_view.text(event) == f"TensorBoard of two, one: {ADDRESS}"
    html = board_view.html(event)
    assert f'href="{ADDRESS}"' in html
    assert "<iframe" not in html


def test_a_frame_where_the_servers_proxy_is_known() -> None:
    event = TensorBoard(("one",), ADDRESS, "/user/ada/proxy/6006/")
    assert '<iframe src="/user/ada/proxy/6006/"' in board_view.html(event)
    assert board_view.text(event) == f"TensorBoard of one: {ADDRESS}"


def test_a_frame_comes_when_there_is_something_to_show() -> None:
    event = TensorBoard(("one",), ADDRESS, "/user/ada/proxy/6006/", loads=True)
    html = board_view.html(event)
    assert "<iframe" not in html
    assert "a frame comes with the first event files" in html
    alone = board_view.html(TensorBoard(("one",), ADDRESS, loads=True))
    assert "a frame" not in alone


def test_a_whole_address_is_the_one_for_text_too() -> None:
    page = "https://hub.example.com/user/ada/proxy/6006/"
    assert board_view.text(TensorBoard(("one",), ADDRESS, page)) == f"TensorBoard of one: {page}"


def test_everything_is_escaped() -> None:
    html = board_view.html(TensorBoard(('<b>"x"',), ADDRESS, '/"><script>x</script>'))
    assert "<script" not in html
    assert "<b>" not in html
    assert "/&quot;&gt;&lt;script" in html


def test_many_jobs_are_not_all_named() -> None:
    text = board_view.text(TensorBoard(tuple(f"job-{n}" for n in range(100)), ADDRESS))
    assert text.startswith("TensorBoard of job-99, job-98, ")
    assert "and 94 more" in text
