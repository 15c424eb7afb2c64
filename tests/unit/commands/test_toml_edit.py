"""Keys in the text of a TOML file: forms, spellings, line ends, and all that must stay."""

from __future__ import annotations

import runpy
import sys
from typing import Any

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.commands import toml_edit
from ciao_kernel.commands.toml_edit import Structured, changed, literal

IMAGES = Structured({"tensorflow": "t:2", "pytorch": "p:2"}, "tensorflow=t:2 pytorch=p:2")
NO_IMAGES = Structured({}, "")
HOSTS = Structured(("a", "c:5000"), "a c:5000")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("color = '''a''' # b\n", 'color = "x" # b\n'),
        ('color = """\n[t]\ncolor = 1\n"""\nlinger = 1\n', 'color = "x"\nlinger = 1\n'),
        ("color = [\n  1, # color\n]\n", 'color = "x"\n'),
        ("color = {a = 1}# b\n", 'color = "x"# b\n'),
        ("color = true\n", 'color = "x"\n'),
        ("color = 2026-01-31T18:00:00Z\n", 'color = "x"\n'),
        ("'co-lor'='a'\nCOLOR='b'", '\'co-lor\'="x"\nCOLOR="x"'),
        ('a = """\ncolor = 1\n"""\n', 'a = """\ncolor = 1\n"""\ncolor = "x"\n'),
        ("a = [\n  [1],\n]\n[t]\n", 'a = [\n  [1],\n]\ncolor = "x"\n[t]\n'),
        ("a = 1\n\n[[t]]\ncolor = 1\n", 'a = 1\n\ncolor = "x"\n[[t]]\ncolor = 1\n'),
        ("a.b = 1\n# t\n  [t]\n", 'a.b = 1\n# t\ncolor = "x"\n  [t]\n'),
        ("a.b = 1", 'a.b = 1\ncolor = "x"\n'),
        ("a = 1 \t", 'a = 1 \t\ncolor = "x"\n'),
        ("a = 1\r\n[t]\r\nb = 2\r\n", 'a = 1\r\ncolor = "x"\r\n[t]\r\nb = 2\r\n'),
        ("# all\r\na = '''\r\n'''", "# all\r\na = '''\r\n'''\r\ncolor = \"x\"\r\n"),
        ("[t]\nb = 2", 'color = "x"\n[t]\nb = 2'),
    ],
)
def test_a_text_replaces_a_value_of_any_form(before: str, after: str) -> None:
    assert changed(before, {"color": "x"}) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("a = 1\ncolor = 'x' # b\n# c\n[t]\nd = 2\n", "a = 1\n# c\n[t]\nd = 2\n"),
        ("'co-lor'='a'\r\na = 1\r\nCOLOR='b'", "a = 1\r\n"),
        ("[t]\ncolor = 1\n", "[t]\ncolor = 1\n"),
        ("[color]\na = 1\n", None),
        ("[[color]]\na = 1\n", None),
    ],
)
def test_a_key_without_a_value_is_removed(before: str, after: str | None) -> None:
    assert changed(before, {"color": None}) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'images = {tensorflow = "t:2", pytorch = "p:2"}\n'),
        ('images = "pytorch=p:1"\n', 'images = "tensorflow=t:2 pytorch=p:2"\n'),
        ("images = '''\npytorch=p:1\n'''\n", 'images = "tensorflow=t:2 pytorch=p:2"\n'),
        ("Images={}  # all", 'Images={tensorflow = "t:2", pytorch = "p:2"}  # all'),
        ('images = ["a"]\n', 'images = {tensorflow = "t:2", pytorch = "p:2"}\n'),
        (
            '[images] # all\n# new\n  PyTorch = "p:1" # old\njax = "j"\n\n# end\n[t]\na = 1\n',
            '[images] # all\n# new\n  PyTorch = "p:2" # old\ntensorflow = "t:2"\n\n# end\n'
            "[t]\na = 1\n",
        ),
        ("a = 1\r\n[images]", 'a = 1\r\n[images]\r\ntensorflow = "t:2"\r\npytorch = "p:2"\r\n'),
        (
            'images.jax = "j"\nimages . "pytorch" = "p:1" # old\nlinger = 1\n',
            'images . "pytorch" = "p:2" # old\nimages.tensorflow = "t:2"\nlinger = 1\n',
        ),
        (
            'images.pytorch = "p:1"',
            'images.pytorch = "p:2"\nimages.tensorflow = "t:2"\n',
        ),
        (
            'images = "a=b"\n[Images]\ntensorflow = "t:1"\n',
            'images = "tensorflow=t:2 pytorch=p:2"\n[Images]\n'
            'tensorflow = "t:2"\npytorch = "p:2"\n',
        ),
    ],
)
def test_a_table_keeps_its_form(before: str, after: str) -> None:
    assert changed(before, {"images": IMAGES}) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("images = 'a=b'\n", 'images = ""\n'),
        ("images = {a = 'b'}\n", "images = {}\n"),
        ("[images] # all\na = 'b'\nc = 'd'\n# end\n", "[images] # all\n# end\n"),
        ("[images]", "[images]"),
        ("images.a = 'b'\nlinger = 1\nimages.c = 'd'\n", "linger = 1\nimages = {}\n"),
    ],
)
def test_a_table_becomes_empty(before: str, after: str) -> None:
    assert changed(before, {"images": NO_IMAGES}) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'hosts = ["a", "c:5000"]\n'),
        ("hosts = 'b'\n", 'hosts = "a c:5000"\n'),
        ("hosts = [] # all\n", 'hosts = ["a", "c:5000"] # all\n'),
        ("hosts=['a', 'b']", "hosts=['a', \"c:5000\"]"),
        ("hosts = {a = 1}\n", 'hosts = ["a", "c:5000"]\n'),
        ("hosts = ['c:5000', 'a'] # order\n", 'hosts = ["a", "c:5000"] # order\n'),
        ("hosts = ['a', ['a'], 1]\n", "hosts = ['a', \"c:5000\"]\n"),
        (
            "hosts = [\r\n  'a', # first\r\n  'b',\r\n]\r\n",
            "hosts = [\r\n  'a', # first\r\n  \"c:5000\",\r\n]\r\n",
        ),
        ("hosts = [\r\n  'b',\r\n]", 'hosts = [\r\n  "a",\r\n  "c:5000",\r\n]'),
        ("hosts = [\r\n]", 'hosts = [\r\n    "a",\r\n    "c:5000"\r\n]'),
    ],
)
def test_an_array_keeps_its_form(before: str, after: str) -> None:
    assert changed(before, {"hosts": HOSTS}) == after


@pytest.mark.parametrize(
    "text",
    [
        "[color]\n",
        "[[color]]\n",
        "color.a = 1\n",
        "[color.a]\n",
        "[[images]]\n",
        "[images.a]\nb = 1\n",
        "[images]\na = 'b'\n[t]\n[images.c]\nd = 1\n",
        "[images]\na.b = 1\n",
        "images.a.b = 1\n",
        "[hosts]\na = 1\n",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    values = {"color": "x", "images": IMAGES, "hosts": HOSTS}
    name = next(name for name in values if name in text)
    assert changed(text, {name: values[name]}) is None
    assert changed(text, {"linger": 1}) is not None


def test_what_tomlkit_cannot_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise tomlkit.exceptions.EmptyKeyError(1, 1)

    monkeypatch.setattr(tomlkit, "parse", broken)
    assert changed("a = 1\n", {"color": "x"}) is None


@pytest.mark.parametrize(
    "written",
    [
        ('a = 1\ncolor = "x"\n', 'a = 1\ncolor = "x"\n'),
        ("a = 1 # b\n", "a = 1 # b\n"),
        ("a = 1 # b\n", 'color = "x"\n'),
        ("a = 1 # b\n", 'a = 1\ncolor = "y"\n'),
        ("a = 1 # b\n", "a =\n"),
    ],
)
def test_what_tomlkit_writes_wrong_is_refused(
    monkeypatch: pytest.MonkeyPatch, written: tuple[str, str]
) -> None:
    texts = iter(written)
    monkeypatch.setattr(tomlkit.TOMLDocument, "as_string", lambda _: next(texts))
    assert changed("a = 1 # b\n", {"color": "x"}) is None


def test_a_value_is_shown_as_it_would_be_written() -> None:
    assert literal('a"b') == r'"a\"b"'
    assert (literal(3), literal(3.0), literal(0.25)) == ("3", "3", "0.25")
    assert literal(IMAGES) == '{tensorflow = "t:2", pytorch = "p:2"}'
    assert literal(HOSTS) == '["a", "c:5000"]'


def test_tomlkit_is_imported_by_the_first_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomlkit", None)  # an import of it fails
    module = runpy.run_path(toml_edit.__file__)
    with pytest.raises(ImportError):
        module["changed"]("", {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '# mine\n[Images] # all\n# new\n  PyTorch = "p:1" # old\njax = "j"\n\n# end\n'
            "[t]\na = 1\n",
            '# mine\n# all\n# new\nImages.PyTorch = "p:2" # old\nImages.python = "q:1"\n\n# end\n'
            "[t]\na = 1\n",
        ),
        (
            '[t]\r\na = 1\r\n\r\n[images]\r\n"python" = "q:0"\r\n# end',
            'images.python = "q:1"\r\nimages.pytorch = "p:2"\r\n[t]\r\na = 1\r\n\r\n# end',
        ),
        ("a = 1\n[images]", 'a = 1\nimages.pytorch = "p:2"\nimages.python = "q:1"\n'),
        ("images = {a = 'b'}", 'images = {pytorch = "p:2", python = "q:1"}'),
        ("images.jax = 'j'\n", 'images.pytorch = "p:2"\nimages.python = "q:1"\n'),
    ],
)
def test_a_section_that_cannot_hold_a_table_becomes_dotted_keys(before: str, after: str) -> None:
    values = {"pytorch": "p:2", "python": "q:1"}
    images = Structured(values, "pytorch=p:2 python=q:1", in_section=False)
    assert changed(before, {"images": images}) == after


def test_names_of_a_table_may_have_one_case_only() -> None:
    volumes = Structured({"nfs://s/E": "/e", "a": "/b"}, "nfs://s/E=/e a=/b", any_case=False)
    assert changed("", {"volumes": volumes}) == 'volumes = {"nfs://s/E" = "/e", a = "/b"}\n'
    assert changed('[volumes]\nA = "/b"\n"nfs://s/E" = "/d"\n', {"volumes": volumes}) == (
        '[volumes]\n"nfs://s/E" = "/e"\na = "/b"\n'
    )


OTHERS = (
    "# color = 1 [t]", "", "  ", "a = [ # c\n 1,\n\n [2], ] # d", "b = {c = [1], d = 'e'}",
    'f = """\nimages = 1\n[t]"""', "g.h = 1", "  'i j' =2\t", "k = 1979-05-27  # l",
)  # fmt: skip
"""Lines that no change may alter."""
LINES = {
    "color={}": "color", "\t'col-or' = {} # color = 1 ": "color", " COLOR ={}#": "color",
    'IMAGES = {} \t# x = "y"': "images", '"i-mages"={} ': "images",
}  # fmt: skip
"""Lines of keys that change, without their values."""
TEXTS = ("'a'", '"# \\" x"', "'''\n#\n'''", '"""\n[t]\n"""')
FORMS = ("1", "true", "{}", "{'a b' = 'c'}", "[\n 1, # x\n]", "07:32:00")
SECTIONS = ("[t]\ncolor = 1\n\n# end", "  [[u]]\nimages = 1 # x", "[v.w]\n\n  images = []")


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([*OTHERS, *LINES]), unique_by=lambda line: line.strip() or object()),
    st.lists(st.sampled_from([*TEXTS, *FORMS]), min_size=len(LINES), max_size=len(LINES)),
    st.lists(st.sampled_from(SECTIONS), unique=True),
    st.sampled_from(["\n", "\r\n"]),
    st.fixed_dictionaries(
        {},
        optional={
            "color": st.sampled_from(["x", 1, 2.5]),
            "images": st.sampled_from([IMAGES, NO_IMAGES]),
            "fresh": st.text(),
        },
    ),
)
def test_all_other_text_stays(
    lines: list[str], olds: list[str], sections: list[str], newline: str, values: dict[str, Any]
) -> None:
    before, after = [], []
    missing = dict(values)
    for line in lines:
        if line in OTHERS:
            old = new = line
        else:
            text = olds[[*LINES].index(line)]
            old = new = line.replace("{}", text, 1)
            name = LINES[line]
            if name in values:
                value = values[name]
                missing.pop(name, None)
                as_text = isinstance(value, Structured) and text in TEXTS
                new = line.replace("{}", literal(value.text if as_text else value), 1)
        before.append(f"{old}\n")
        after.append(f"{new}\n")
    after += [f"{name} = {literal(value)}\n" for name, value in missing.items()]
    ends = [f"{section}\n" for section in sections]
    whole, wanted = ("".join(part + ends).replace("\n", newline) for part in (before, after))
    if newline not in whole:
        wanted = wanted.replace(newline, "\n")
    assert changed(whole, values) == wanted
    assert changed(wanted, values) == wanted
