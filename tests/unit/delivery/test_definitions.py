"""Functions and classes of the notebook, delivered as source."""

from __future__ import annotations

import functools
import importlib
import linecache
import math
import sys
import types
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

from ciao_kernel.delivery.input.variables import deliver, module_code
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Source, SourceFile

CELLS = [
    """\
import math
import os.path as path
from functools import lru_cache, partial as part
rate, table, unused = 0.5, {"a": [1]}, object()
""",
    """\
class Base:
    '''A class without a method.'''
    factor: float = 2.0
""",
    """\
@part(lambda scale, kind: kind, 1)
class Model(Base):
    def __init__(self, size=3):
        super().__init__()
        self.size = size

    def area(self):
        return math.pi * self.size * self.factor
""",
    """\
%matplotlib inline
""",
    """\
@lru_cache
def step(count):
    unused = [count * rate for count in range(count)]  # not the variable of the notebook
    return step(count - 1) if count else (helper(unused), path.join("a", "b"), table["a"])

def helper(values):
    return len(values), Model().area()

alias = helper
def outer():
    free = 1
    def inner():
        return free
    return inner
made = outer()
short = lambda x: x
""",
]


@pytest.fixture
def notebook() -> Iterator[dict[str, Any]]:
    """The variables of a notebook after its cells, as IPython runs them."""
    variables: dict[str, Any] = {"__name__": "__main__", "In": ["", *CELLS]}
    for number, text in enumerate(CELLS):
        if not text.startswith("%"):
            name = f"<ipython-input-{number}>"
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            exec(compile(text, name, "exec"), variables)
    del variables["unused"]
    yield variables
    for number in range(len(CELLS)):
        linecache.cache.pop(f"<ipython-input-{number}>", None)


def program(
    folder: Path, code: str, names: list[str], variables: dict[str, Any]
) -> types.ModuleType:
    """Return the module that a program with these variables would import."""
    imports = frozenset({"ciao_input"} if "ciao_input" in code else ())
    source = deliver(Source(SourceFile("ciao_cell.py"), imports=imports), names, variables)
    for file in source.files:
        (folder / file.path).parent.mkdir(exist_ok=True)
        (folder / file.path).write_bytes(file.data or b"")
    module = types.ModuleType("ciao_input")
    module.__file__ = str(folder / "ciao_input.py")
    exec(compile((folder / "ciao_input.py").read_text(), module.__file__, "exec"), vars(module))
    return module


def test_a_function_brings_what_it_uses(notebook: dict[str, Any], tmp_path: Path) -> None:
    module = program(tmp_path, "", ["step"], notebook)
    expected = ((0, math.pi * 6), "a/b", [1])
    assert module.step(5) == expected == notebook["step"](5)
    assert (module.rate, module.table) == (0.5, {"a": [1]})
    assert not hasattr(module, "alias")
    assert sorted(path.name for path in (tmp_path / "input").iterdir()) == [
        "rate.json",
        "table.json",
    ]


def test_a_class_brings_its_bases_and_another_name_is_kept(
    notebook: dict[str, Any], tmp_path: Path
) -> None:
    module = program(tmp_path, "", ["Model", "alias"], notebook)
    assert module.Model(1).area() == math.pi * 2
    assert module.alias is module.helper


def test_its_imports_count_as_the_programs(notebook: dict[str, Any]) -> None:
    code = module_code(["step"], notebook)
    lines = code.split("\n\n")[0].splitlines()
    assert sorted(lines) == [
        "from functools import lru_cache",
        "from functools import partial as part",
        "import math as math",
        "import posixpath as path",
    ]
    assert module_code(["rate"], notebook) == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("short", "%input cannot take short: short uses a lambda."),
        ("made", "%input cannot take made: inner was defined inside outer, with its variables."),
        ("typed", "%input cannot take typed: the source of typed is not known here."),
    ],
)
def test_code_without_a_text_is_refused(notebook: dict[str, Any], name: str, message: str) -> None:
    exec("def typed(): pass", notebook)
    with pytest.raises(SpecError) as caught:
        deliver(Source(SourceFile("x")), [name], notebook)
    assert caught.value.message == message
    assert caught.value.hint


USES = "def use(): return api_token, model, sorted\ndef sorted(): pass\n"


@pytest.fixture
def uses() -> Iterator[dict[str, Any]]:
    """A function that uses what its user has not named."""
    linecache.cache["<uses>"] = (len(USES), None, USES.splitlines(keepends=True), "<uses>")
    variables: dict[str, Any] = {"__name__": "__main__", "api_token": "s3cret", "model": object()}
    exec(compile(USES, "<uses>", "exec"), variables)
    yield variables
    linecache.cache.pop("<uses>")


def test_a_value_that_may_be_a_password_goes_only_if_it_is_named(uses: dict[str, Any]) -> None:
    uses["model"] = 1
    with pytest.raises(SpecError, match="it uses api_token, which may be a password") as caught:
        deliver(Source(SourceFile("x")), ["use"], uses)
    assert "%input=use api_token" in caught.value.hint
    source = deliver(Source(SourceFile("x")), ["use", "api_token"], uses)
    assert "input/api_token.json" in [file.path for file in source.files]


def test_a_value_that_cannot_go_is_blamed_on_the_function(uses: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as caught:
        deliver(Source(SourceFile("x")), ["use", "api_token"], uses)
    assert caught.value.message == (
        "%input cannot take use: it uses model: no file format supports values of type object."
    )


LIBRARY_OBJECTS = """\
import logging
from typing import TypeVar
import numpy
T = TypeVar("T")
Number = TypeVar("Number", int, float)
Wide = TypeVar("Wide", covariant=True)
own = logging.getLogger("ciao-test.own")
loud = logging.getLogger("ciao-test.loud")
loud.setLevel("INFO")
mute = logging.getLogger("ciao-test.mute")
mute.addHandler(logging.NullHandler())
alone = logging.Logger("ciao-test.alone")
random = numpy.random.default_rng(1)
def first(x: T) -> T:
    own.debug("first")
    return x
def f():
    return USED
"""


def test_a_logger_and_a_type_variable_are_made_again(tmp_path: Path) -> None:
    variables = defined(LIBRARY_OBJECTS)
    module = program(tmp_path, "import ciao_input", ["first"], variables)
    assert module.first(7) == 7
    assert module.own is variables["own"]
    assert (repr(module.T), type(module.T)) == ("~T", type(variables["T"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ciao_input.py"]


def test_a_level_that_a_new_program_does_not_have_is_said(caplog: pytest.LogCaptureFixture) -> None:
    variables = defined(LIBRARY_OBJECTS)

    def notes(code: bytes) -> tuple[str, ...]:
        return deliver(Source(SourceFile("x", code), notes=("a",)), ["first"], variables).notes

    with caplog.at_level("INFO"):
        assert notes(b"print()") == (
            "a",
            "the logger ciao-test.own has the level INFO here, and WARNING in the replicas: call "
            "logging.basicConfig(level=20) in this cell too",
        )
        assert notes(b"import logging\nlogging.basicConfig(level=20)") == ("a",)
    with caplog.at_level("WARNING"):
        assert notes(b"print()") == ("a",)


@pytest.mark.parametrize("used", ["Number", "Wide", "loud", "mute", "alone", "random"])
def test_what_nothing_converts_belongs_inside_the_function(used: str) -> None:
    variables = defined(LIBRARY_OBJECTS.replace("USED", used))
    with pytest.raises(SpecError) as caught:
        deliver(Source(SourceFile("x")), ["f"], variables)
    assert f"%input cannot take f: it uses {used}: no file format" in caught.value.message
    assert caught.value.hint == (
        "Create it inside f, or put f and it into a module beside the notebook."
    )


def test_a_function_that_hides_a_builtin_comes_along(uses: dict[str, Any]) -> None:
    assert "def sorted(): pass" in module_code(["use"], uses)


def tensor() -> Any:
    import torch

    return torch.tensor([[1.0, 2.0]])


@pytest.mark.parametrize(
    "make",
    [
        lambda: (1, [2, "ä"], None),
        lambda: {"all": [(1, 2), (3, 4)], "at": ((), [()], {"is": (None,)}), "0": [[1], (2,)]},
        lambda: Counter("abb"),
        lambda: OrderedDict(b=1, a=(2, [True])),
        lambda: b"\x00\xff",
        lambda: bytearray(b"\x00"),
        lambda: np.arange(4, dtype="int16"),
        lambda: pd.DataFrame({"a": [1.5, 2.5]}, index=["x", "y"]),
        lambda: pd.Series([1, 2], name="value"),
        lambda: pd.Index([3, 4], name="value"),
        lambda: pd.MultiIndex.from_tuples([(1, "a"), (2, "b")], names=["n", "c"]),
        tensor,
    ],
)
def test_values_have_their_types_again(make: Any, tmp_path: Path) -> None:
    value = make()
    back = program(tmp_path, "from ciao_input import value", ["value"], {"value": value}).value
    assert isinstance(back, type(value))
    same = getattr(back, "equals", functools.partial(_same, back))
    assert same(value)


UNNAMED = [
    pd.Series([1, 2]),
    pd.Series([1, 2], pd.Index(["x", "y"], name="value")),
    pd.Index(["a", "b"]),
    pd.Index([3, 4], name="value"),
    pd.MultiIndex.from_tuples([(1, "a"), (2, "b")]),
    pd.MultiIndex.from_tuples([(1, "a"), (2, "b")], names=["n", None]),
]


@pytest.mark.parametrize("value", UNNAMED, ids=str)
@pytest.mark.parametrize("fixture", ["", "no_pyarrow"])
def test_what_has_no_name_has_none_again(
    value: Any, fixture: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if fixture:
        request.getfixturevalue(fixture)
    back = program(tmp_path, "from ciao_input import value", ["value"], {"value": value}).value
    assert back.equals(value)
    own = "names" if isinstance(value, pd.MultiIndex) else "name"
    assert getattr(back, own) == getattr(value, own)


@pytest.fixture
def no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel, and a replica, without the package."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)


CITIES = {"city": ["a", "b", "NA"], "year": [3, 4, 4], "size": [0.1, float("nan"), 1e300]}
CODES = {
    "zip": ["01234", "00042", "NA"],
    "label": ["", "x, y", 'a\n"b"'],
    "none": [None, "x", "1"],
    "line": ["x,\ry", "\r\n", '"\r'],
}
TIMES = pd.date_range("2026-03-28", periods=3, tz="Europe/Berlin", name="day")
WIDTHS = {
    "small": np.array([0.1, 1, 255], "float32"),
    "byte": np.array([0, 1, 255], "uint8"),
    "flag": [True, False, True],
    "maybe": pd.array([1, None, 3], "Int64"),
    "after": pd.to_timedelta([1, None, 3], "h"),
    "kind": pd.Categorical(list("aba")),
}


@pytest.mark.usefixtures("no_pyarrow")
@pytest.mark.parametrize(
    "value",
    [
        pd.DataFrame(CITIES).groupby("city")["size"].sum(),
        pd.DataFrame(CITIES).set_index("city"),
        pd.DataFrame(CITIES).set_index(["city", "year"]),
        pd.DataFrame(CITIES).set_index(["city", "year"])["size"],
        pd.DataFrame(CITIES).pivot_table(index="city", columns="year", values="size"),
        pd.DataFrame(CODES),
        pd.DataFrame(CODES, dtype=object),
        pd.DataFrame(CODES).set_index("zip"),
        pd.DataFrame(WIDTHS, index=TIMES),
        pd.DataFrame({"when": TIMES.tz_localize(None)}),
        pd.DataFrame([[1, 2.5], [3, 4]]),
        pd.DataFrame([[1, 2.5], [3, 4]], index=[7, 7]),
        pd.Series(["001", "002"], name="value"),
        pd.Index(["01", "NA"], name="code"),
        pd.MultiIndex.from_tuples([("01", 1), ("NA", 2)], names=["code", "number"]),
    ],
)
def test_tables_without_pyarrow_are_the_same_again(value: Any, tmp_path: Path) -> None:
    back = program(tmp_path, "from ciao_input import value", ["value"], {"value": value}).value
    assert [one.suffix for one in (tmp_path / "input").iterdir()] == [".csv"]
    if isinstance(value, pd.DataFrame):
        pd.testing.assert_frame_equal(back, value, check_freq=False, check_column_type=False)
    elif isinstance(value, pd.Series):
        pd.testing.assert_series_equal(back, value)
    else:
        assert back.equals(value)
        assert back.names == value.names


@pytest.mark.usefixtures("no_pyarrow")
@pytest.mark.parametrize(
    ("value", "what"),
    [
        (pd.DataFrame({"a": [1, "x"]}), "the values of 'a', which are not all text"),
        (pd.DataFrame({"a": ["x\0y"]}), "the values of 'a', which are not all text"),
        (pd.DataFrame({"a": ["x\ry"]}), "a carriage return in text"),
        (pd.DataFrame({"a": pd.Categorical(["x\r"])}), "a carriage return in text"),
        (pd.DataFrame({"a\r": [1]}), "a carriage return in text"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([2], name="i\r")), "a carriage return in text"),
        (pd.DataFrame({"a": ["", None]}), "which values of 'a' are missing"),
        (pd.DataFrame({"a": np.array([1j])}), "the type of 'a', complex128"),
        (pd.DataFrame({"a": pd.Categorical(["x"], ["y", "x"])}), "the categories of 'a'"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "columns of one name"),
        (pd.DataFrame([[1, 2]], columns=["a", 1]), "names of columns that are not text"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([2], name=(1,))), "names of index levels"),
    ],
)
def test_without_pyarrow_what_csv_loses_is_refused(value: Any, what: str) -> None:
    with pytest.raises(SpecError) as caught:
        deliver(Source(SourceFile("x")), ["table"], {"table": value})
    assert caught.value.message.startswith(
        "%input cannot take table, a DataFrame: without pyarrow it would be a CSV file, which does "
        "not keep "
    )
    assert what in caught.value.message
    assert caught.value.hint.startswith("Install pyarrow")


def _same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other)) if hasattr(one, "shape") else bool(one == other)


def test_the_module_comes_only_if_it_is_needed() -> None:
    source = deliver(Source(SourceFile("x")), ["n"], {"n": 1})
    assert [file.path for file in source.files] == ["input/n.json"]


def test_a_module_of_that_name_is_an_error() -> None:
    own = SourceFile("ciao_input.py", b"")
    source = Source(SourceFile("x"), modules=(own,), imports=frozenset({"ciao_input"}))
    with pytest.raises(SpecError, match=r"there is a ciao_input\.py beside the notebook"):
        deliver(source, ["n"], {"n": 1})


def test_the_loader_needs_only_the_standard_library() -> None:
    text = Path(
        sys.modules["ciao_kernel.delivery.input"].__path__[0], "input_loader.py"
    ).read_text()
    assert "import ciao_kernel" not in text
    assert compile(text, "x", "exec", flags=0)


@pytest.mark.parametrize("name", ["annotations", "json", "Path", "Any", "read", "STORED", "load"])
def test_a_variable_may_have_any_name(tmp_path: Path, name: str) -> None:
    """The reader of values has names of its own."""
    found = program(tmp_path, "import ciao_input", [name, "other"], {name: [1], "other": {"a": 2}})
    assert getattr(found, name) == [1]
    assert found.other == {"a": 2}
    with pytest.raises(AttributeError, match="does not name nope"):
        found.nope  # noqa: B018


def defined(text: str) -> dict[str, Any]:
    """The variables of a notebook whose cell has this text."""
    file = f"<cell {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    variables: dict[str, Any] = {"__name__": "__main__", "In": [text]}
    exec(compile(text, file, "exec", dont_inherit=True), variables)
    return {name: value for name, value in variables.items() if name != "__builtins__"}


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
@pytest.mark.parametrize("method", ["", "    def text(self): return str(self.lr)\n"])
def test_annotations_are_what_they_were_in_the_notebook(
    tmp_path: Path, method: str, future: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """argparse takes the types of a dataclass's fields from them."""
    cell = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    lr: float = 0.1\n"
    cell += method
    deliver_to = deliver(
        Source(SourceFile("ciao_cell.py"), imports=frozenset({"ciao_input"})),
        ["Config"],
        defined(future + cell),
    )
    [text] = [one.data for one in deliver_to.files if one.path == "ciao_input.py"]
    assert text is not None
    module = types.ModuleType("ciao_input")
    monkeypatch.setitem(sys.modules, "ciao_input", module)
    names = vars(module) | {"__file__": str(tmp_path / "x.py")}
    exec(compile(text, "x", "exec", dont_inherit=True), names)
    assert names["Config"].__annotations__ == {"lr": "float" if future else float}
    assert "annotations" not in names


@pytest.mark.parametrize(
    "head",
    [
        "from dataclasses import dataclass\n@dataclass\nclass",
        "from typing import NamedTuple\nclass",
    ],
)
def test_annotations_of_a_class_without_methods_may_name_what_is_not_there(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ciao_input", types.ModuleType("ciao_input"))
    base = "(NamedTuple)" if "Named" in head else ""
    cell = (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        f"if TYPE_CHECKING:\n    from decimal import Decimal\n{head} Config{base}:\n"
        "    price: Decimal | None = None\n"
    )
    found = program(tmp_path, "import ciao_input", ["Config"], defined(cell))
    assert found.Config().price is None
    plain = cell.replace("from __future__ import annotations\n", "")
    quoted = plain.replace("Decimal | None =", "'Decimal | None' =")
    assert program(tmp_path, "import ciao_input", ["Config"], defined(quoted)).Config()


def test_a_function_that_assigns_a_global_variable_brings_it(tmp_path: Path) -> None:
    variables = defined("counter = 3\ndef count():\n    global counter\n    counter += 1\n")
    found = program(tmp_path, "import ciao_input", ["count"], variables)
    found.count()
    assert found.counter == 4


def test_the_users_own_display_is_brought(tmp_path: Path) -> None:
    variables = defined("def display(x):\n    return x\ndef show(x):\n    return display(x)\n")
    assert program(tmp_path, "import ciao_input", ["show"], variables).show(7) == 7


IPYTHON = [
    ("    get_ipython().system('ls')\n", "an IPython command (! or %, or get_ipython)"),
    ("    if x:\n        y = get_ipython().getoutput('ls')\n", "an IPython command"),
    ("    try:\n        get_ipython()\n    except OSError:\n        pass\n", "an IPython command"),
    ("    return get_ipython() if get_ipython() else None\n", "an IPython command"),
    ("    display(x)\n", "IPython's display"),
    ("    return x and display(x)\n", "IPython's display"),
    ("    if not x:\n        return x\n    display(x)\n", "IPython's display"),
    ("    if in_notebook():\n        return x\n    display(x)\n", "IPython's display"),
    ("    if not in_notebook():\n        x = 2\n    display(x)\n", "IPython's display"),
    ("    display(x)\n    if not in_notebook():\n        return x\n", "IPython's display"),
    ("    with suppress(OSError):\n        display(x)\n", "IPython's display"),
]


@pytest.mark.parametrize(("body", "what"), IPYTHON)
def test_what_only_ipython_has_is_refused(body: str, what: str) -> None:
    """It would end the program with a NameError, perhaps after hours."""
    variables = defined(f"def f(x):\n{body}def user(x):\n    return f(x)\n")
    with pytest.raises(SpecError) as caught:
        deliver(Source(SourceFile("x")), ["user"], variables | {"get_ipython": InteractiveShell})
    assert caught.value.message.startswith(f"%input cannot take user: f uses {what}")
    assert caught.value.message.endswith(", which a program does not have.")
    remedy = (
        "Use print, or import it inside the function: from IPython.display import display."
        if "display" in what
        else "Use subprocess, or leave the line out."
    )
    assert caught.value.hint.startswith(remedy)


GUARDED = [
    "    try:\n        return get_ipython()\n    except NameError:\n        return x\n",
    "    try:\n        return get_ipython()\n    except (OSError, NameError):\n        return x\n",
    "    try:\n        return display(x)\n    except:\n        return x\n",
    "    if in_notebook():\n        display(x)\n    return x\n",
    "    if 'get_ipython' in globals() and get_ipython():\n        display(x)\n    return x\n",
    "    get_ipython = display = str\n    return int(display(x))\n",
    "    import sys\n    if 'ipykernel' in sys.modules:\n        display(x)\n    return x\n",
    "    import sys\n    if 'google.colab' in sys.modules:\n        display(x)\n    return x\n",
    "    if not in_notebook():\n        return x\n    display(x)\n    get_ipython()\n",
    "    for y in (x,):\n        if not in_notebook():\n            return x\n        display(y)\n",
    "    in_notebook() and display(x)\n    return x\n",
    "    not in_notebook() or display(x)\n    return x\n",
    "    from contextlib import suppress\n    with suppress(NameError):\n        display(x)\n"
    "    return x\n",
    "    from IPython.display import display\n    return x if display else 0\n",
]


@pytest.mark.parametrize("body", GUARDED)
def test_code_that_expects_to_be_without_ipython_is_delivered(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # another test may have brought it
    variables = defined(f"def f(x):\n{body}def in_notebook():\n    return False\n")
    variables["get_ipython"] = InteractiveShell
    assert program(tmp_path, "import ciao_input", ["f"], variables).f(7) == 7


def test_a_display_that_a_cell_has_made_or_imported_is_brought(tmp_path: Path) -> None:
    variables = defined("display = 3\ndef f():\n    return display\n")
    assert program(tmp_path, "import ciao_input", ["f"], variables).f() == 3
    variables = defined("from IPython.display import display\ndef f():\n    return display\n")
    assert program(tmp_path, "import ciao_input", ["f"], variables).f() is variables["display"]


def test_a_source_that_cannot_be_told_is_an_error_of_its_name() -> None:
    cell = 'if True:\n    def odd():\n        return """\nflush left\n"""\n'
    with pytest.raises(SpecError, match="%input cannot take odd: the source of odd cannot be told"):
        deliver(Source(SourceFile("x")), ["odd"], defined(cell))


def after(*cells: str) -> dict[str, Any]:
    """The variables of a notebook after its cells; those of ``%%time`` leave no lines behind."""
    variables: dict[str, Any] = {"__name__": "__main__", "In": [""]}
    for text in cells:
        magic, file = text.startswith("%%time\n"), f"<cell {hash(text)}>"
        inner = text.removeprefix("%%time\n")
        call = f"get_ipython().run_cell_magic('time', '', {inner!r})\n"
        variables["In"].append(call if magic else text)
        if not magic:
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        runs = inner.replace("%precision 3\n", "\n")
        exec(compile(runs, "<timed exec>" if magic else file, "exec"), variables)
    return {name: value for name, value in variables.items() if name != "__builtins__"}


TIMED = """\
import functools
import importlib
def timed(f):
    @functools.wraps(f)
    def inner(*given):
        return 2 * f(*given)
    return inner
"""
NET = """\
class Net:
    state = 0
    rate = 0.1
    def forward(self):
        return 1
    def loss(self):
        return 2
"""


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ("def forward(self): return 3\nNet.forward = forward\n", "forward"),
        ("def more(self): return 3\nNet.more = more\n", "more"),
        ("def more(self): return 3\nNet.more = property(more)\n", "more"),
        ("Net.more = lambda self: 3\n", "more"),
        ("Net.more = Net.forward\n", "more"),
        (TIMED + "Net.forward = timed(Net.forward)\n", "forward"),
        ("Net.forward = property(Net.forward)\n", "forward"),
        ("Net.rate = 0.5\n", "rate"),
        ("Net.other = 0.5\n", "other"),
        ("Net.state += 1\nNet.rate = 0.5\n", "rate"),
        ("Net.rate = lambda self: 3\n", "rate"),
        ("del Net.loss\n", "loss"),
    ],
)
def test_a_class_that_was_changed_after_its_definition_is_refused(change: str, member: str) -> None:
    with pytest.raises(SpecError) as caught:
        deliver(Source(SourceFile("x")), ["Net"], after(NET, change))
    assert caught.value.message == (
        f"%input cannot take Net: Net.{member} was changed after the class was defined."
    )
    assert caught.value.hint == "Put it into the body of class Net, and run that cell again."


def test_a_class_whose_state_has_changed_is_found_by_its_code(tmp_path: Path) -> None:
    variables = after(
        "class A:\n    n = 0\n    def m(self): return self.n\nOld = A\n",
        "class A:\n    n = 1\n    k = 1\n    def other(self): return 1\n",
        "def f(): return Old().m()\nOld.n += 5\n",
    )
    assert program_of("f", variables, tmp_path)["f"]() == 0


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("step = timed(step)\n", "step"),
        ("other = timed(step)\n", "other"),
        ("step = functools.lru_cache(timed(step))\n", "step"),
    ],
)
def test_a_function_that_was_wrapped_after_its_definition_is_refused(
    change: str, name: str
) -> None:
    with pytest.raises(SpecError) as caught:
        deliver(Source(SourceFile("x")), [name], after(TIMED, "def step(x): return x\n", change))
    assert caught.value.message == (
        f"%input cannot take {name}: another function wraps step, after its definition."
    )
    assert f"decorator above def {name}," in caught.value.hint


@pytest.mark.parametrize(
    "cells",
    [
        ["def f(): return f.k\n", "f.k = 7\n"],
        ["def f(): return getattr(f, 'k', 1)\nf.k = 7\n"],
        ["def f(): return f.k\n", "f.k = 7\nclass C:\n    def m(self): self.k = 1\n"],
        ["def f(): return f.k\n", "setattr(f, 'k', 7)\n"],
        ["def f():\n    f.k += 1\n    return f.k\n", "g = f\nif g:\n    g.k = 0\n"],
        ["def f(): return f.k\n", "f.k = 7\n", "f = functools.lru_cache(f)\n"],
    ],
)
def test_a_function_whose_attribute_was_set_after_its_definition_is_refused(
    cells: list[str],
) -> None:
    cells = [*cells, "def user(): return f()\n"]
    for name in ("f", "user"):
        with pytest.raises(SpecError) as caught:
            deliver(Source(SourceFile("x")), [name], after("import functools\n", *cells))
        assert caught.value.message == (
            f"%input cannot take {name}: f.k was set after the function was defined."
        )
        assert caught.value.hint == (
            "Keep the value in a variable of the notebook, which f uses by its name."
        )


STEP = "LR, NAN, OLD = 0.1, float('nan'), 3\ndef other(): return 1\n"


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (
            ["def step(lr=LR): return lr\n", "LR = 0.5\n"],
            "the default of lr in step is not the value of LR now.",
        ),
        (["def step(*, lr=LR): return lr\n", "LR = 0.5\n"], "the default of lr in step"),
        (["@timed\ndef step(a, lr=LR): return lr\n", "LR = 0.5\n"], "the default of lr in step"),
        (
            ["def step(f=other): return f()\n", "def other(): return 2\n"],
            "the default of f in step is not the value of other",
        ),
        (["def step(lr=0.1): return lr\n", "step.__defaults__ = (2,)\n"], "the default of lr was"),
        (
            ["def step(lr=LR): return lr\n", "step.__defaults__ = (2,)\n"],
            "the default of lr in step is not",
        ),
        (["def step(lr=0.1): return lr\n", "step.__defaults__ = None\n"], "a default of step was"),
        (
            ["def step(*, n=3): return n\n", "step.__kwdefaults__ = {'n': 1}\n"],
            "the default of n was",
        ),
        (
            ["class step:\n    def m(self, lr=LR): return lr\n", "LR = 0.5\n"],
            "the default of lr in step.m",
        ),
        (
            ["class step:\n    @staticmethod\n    def m(lr=LR): return lr\n", "LR = 0.5\n"],
            "the default of lr in step.m is not the value of LR now.",
        ),
        (
            [
                "class step:\n    @property\n    def m(self): return 1\n"
                "    @m.setter\n    def m(self, lr=LR): pass\n",
                "LR = 0.5\n",
            ],
            "the default of lr in step",
        ),
        (["class step:\n    lr = LR\n", "LR = 0.5\n"], "step.lr is not the value of LR now."),
        (
            [
                "class step:\n    lr = LR\n",
                "def up():\n    global LR\n    LR = LR * 5\n",
                "up()\n",
            ],
            "step.lr is not the value of LR now.",
        ),
        (
            ["class step:\n    lr = LR\n", "[(LR := i) for i in range(3)]\n"],
            "step.lr is not the value of LR now.",
        ),
        (
            ["acc = []\ndef step(x, out=acc): out.append(x)\n", "step(1)\n", "acc = []\n"],
            "the default of out in step is not the value of acc now.",
        ),
        (["class step:\n    lr = LR\n", "step.lr = 0.5\n"], "step.lr was changed after the class"),
        (
            [
                "from dataclasses import dataclass\n@dataclass\nclass step:\n    lr: float = LR\n",
                "LR = 0.5\n",
            ],
            "step.lr is not the value of LR now.",
        ),
        (
            [
                "from typing import NamedTuple\nclass step(NamedTuple):\n    lr: float = LR\n",
                "LR = None\n",
            ],
            "step.lr is not the value of LR now.",
        ),
        (["def step(lr=LR): return lr\n", "del LR\n"], "step was defined with LR, which the note"),
        (
            ["class step:\n    lr = 2 * LR\n", "del LR\n"],
            "step was defined with LR, which the note",
        ),
        (["@timed\ndef step(): return 1\n", "del timed\n"], "step was defined with timed, which"),
    ],
)
def test_a_definition_that_took_a_value_which_is_another_now_is_refused(
    cells: list[str], words: str
) -> None:
    """The text would take the present one."""
    with pytest.raises(SpecError) as caught:
        deliver(Source(SourceFile("x")), ["step"], after(TIMED, STEP, *cells))
    assert caught.value.message.startswith("%input cannot take step: ")
    assert words in caught.value.message
    assert (
        "that cell again" in caught.value.hint or "Run the cell that defines" in caught.value.hint
    )


@pytest.mark.parametrize(
    "text",
    [
        "def value(lr=LR, nan=NAN, f=other): return 2\n" + STEP,  # the cell runs once more
        "rows = [1, NAN]\ndef value(rows=rows): return 2\nrows = [1, float('nan')]\n",
        "import numpy as np\na = np.ones(2)\ndef value(a=a, b=LR): return 2\na = np.ones(3)\n",
        "import numpy as np\na = np.ones(2)\ndef value(a=a): return 2\na = 1\n",
        "import numpy as np\na = np.float32(1)\ndef value(a=a): return 2\na = 1.0\n",
        "class S:\n    n = OLD\ndef go(): S.n += 1\ngo()\nOLD = 3\ndef value(): return S.n - 1\n",
        "class S:\n    n = OLD\ndef value(): return S.n - 1\nsetattr(S, 'n', 5)\nOLD = 3\n",
        "acc = []\nclass S:\n    n = acc\nS.n.append(1)\nacc = []  # as the cell has it\n"
        "def fill(acc):\n    acc = [acc for acc in acc]\n    return acc\n"
        "def value(): return len(S.n) + 2\n",
        "class S:\n    n = 2\n    def m(self, n=n): return n\nn = 7\ndef value(): return S().m()\n",
        "class B:\n    def __init_subclass__(cls): cls.n = 2\nclass C(B):\n    n = OLD\n"
        "OLD = 1\ndef value(): return C.n\n",
        "def value(f=fast if False else 2, g=False and fast, h=[fast for x in []]): return f\n",
        "class C:\n    if OLD:\n        n = 2\n    else:\n        n = fast\n    m = n\n"
        "    try:\n        k = fast\n    except NameError:\n        k = None\n"
        "    name = __qualname__\ndef value(): return C.m\n",
        "class A[T: Gone]:\n    def m[U](self, x: U, y: T) -> T: return 2\n"
        "def value(): return A().m(1, 2)\n",
    ],
)
def test_a_definition_that_has_the_values_of_the_notebook_is_delivered(
    text: str, tmp_path: Path
) -> None:
    """In doubt too: a cell that runs again makes equal values that are other objects."""
    if "[T" in text and sys.version_info < (3, 12):
        pytest.skip("type parameters are new in Python 3.12")
    assert program_of("value", after(STEP, text), tmp_path)["value"]() == 2


KEPT = {
    "a decorator": TIMED + "@timed\ndef value():\n    return 1\n",
    "a decorated method": TIMED + "class C:\n    @timed\n    def m(self): return 1\n"
    "def value(): return C().m()\n",
    "state": "class C:\n    count, items = 0, []\n    total = 0\n    def m(self):\n"
    "        C.total += 1\n        C.items.append(1)\n        return C.total\nC().m()\n"
    "def value(): return 2 * C().m()\n",
    "state that functions change": "class S:\n    epoch, best = 0, 0\n    n = 0\n"
    "def train():\n    for S.epoch in range(3):\n        S.n += 1\n    S.other = S.best = S.n\n"
    "train()\nS.n = 0\ndef value():\n    S.n = 2\n    return S.n\n",
    "state that loops change": "class S:\n    n = 0\n    m = 0\nfor S.n in range(3): pass\n"
    "S.m += 1\nS.m = 4\nS.items, S.names = [], {}\ndef value(): return 2 + S.n + S.m\n",
    "state of a base": "class B:\n    made = 0\n    def __init__(self): type(self).made += 1\n"
    "class C(B): pass\nC()\ndef value():\n    C()\n    return 2 * C.made\n",
    "state that another class changes": "class M:\n    steps = 0\nclass T:\n"
    "    def go(self): M.steps += 1\nT().go()\ndef value():\n    T().go()\n"
    "    return 2 * M.steps\n",
    "state by its name": "class C:\n    calls = 0\n    @classmethod\n"
    "    def hit(cls): setattr(cls, 'calls', cls.calls + 1)\nC.hit()\n"
    "def value():\n    C.hit()\n    return 2 * C.calls\n",
    "a wrapper of a library": "import functools\ndef slow(x): return x\n"
    "fast = functools.lru_cache(slow)\nslow = functools.lru_cache(slow)\n"
    "def value(): return fast(1) + slow(1)\n",
    "a variable that is None": "other = None\ndef value(): return 2 if other is None else 1\n",
    "a dataclass": "from dataclasses import dataclass, field\n@dataclass\nclass C:\n"
    "    lr: float = 1.0\n    rest: list = field(default_factory=list)\n    def m(self):\n"
    "        return 2 * self.lr\ndef value(): return C().m()\n",
    "a named tuple": "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int = 2\n"
    "    def m(self): return self.x\ndef value(): return P().m()\n",
    "state of a function": "def value():\n    if not hasattr(value, 'n'): value.n = 0\n"
    "    value.n += 1\n    return value.n + 1\nvalue()\nvalue.n = 0\n",
    "attributes by a decorator": "def mark(f):\n    f.n = 2\n    return f\n@mark\n"
    "def value(): return value.n\nvalue.n = 2\n",
    "marks of a library": "def value(): return 2\nvars(value)['_mark'] = 1\n"
    "value.__test__ = False\n",
    "an attribute of something else": "from types import SimpleNamespace\n"
    "def value(): return 2\nvars(value)['n'] = 1\nother = SimpleNamespace()\nother.n = 1\n",
    "an enum": "import enum\nclass E(enum.Enum):\n    A = 2\n    def m(self): return self.value\n"
    "def value(): return E.A.m()\n",
    "special methods": "from abc import ABC, abstractmethod\nclass C(ABC):\n"
    "    __slots__ = ('a',)\n    __p = 2\n    def __q(self): return self.__p\n"
    "    def __new__(cls): return object.__new__(cls)\n    def __init_subclass__(cls): pass\n"
    "    def __class_getitem__(cls, x): return cls\n    @property\n    def y(self):\n"
    "        return self.__q()\n    @y.setter\n    def y(self, v): pass\n    @abstractmethod\n"
    "    def z(self): ...\n    for i in range(2): pass\nclass D(C):\n    def z(self):\n"
    "        return self.y\ndef value(): return D().z()\n",
    "a default of a setter": "class C:\n    @property\n    def y(self): return 2\n"
    "    @y.setter\n    def y(self, v=None): pass\n    @y.deleter\n    def y(self, v=1): pass\n"
    "def value(): return C().y\n",
    "a function in the body": "def f(self): return 2\nclass C:\n    m = f\n"
    "def value(): return C().m()\n",
    "a decorator of the notebook": "def add(c):\n    c.x, c.y = (lambda self: 2), 1\n    return c\n"
    "@add\nclass C:\n    pass\ndef value(): return C().x()\n",
    "a hook of the notebook": "class B:\n    def __init_subclass__(cls):\n"
    "        cls.x = lambda self: 2\nclass C(B):\n    def m(self): return self.x()\n"
    "def value(): return C().m()\n",
    "annotations of itself": "from __future__ import annotations\nclass C:\n"
    "    def m(self, other: C | None = None) -> C: return self\n    n: int = 2\n"
    "def value(): return C().m().n\n",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_code_that_only_looks_changed_is_delivered(text: str, tmp_path: Path) -> None:
    variables = after(text)
    module = program_of("value", variables, tmp_path)
    assert module["value"]() == 2


LIBRARY = """\
import functools
def hooked(function):
    @functools.wraps(function)
    def inner(*given): return function(*given)
    return inner
class Optimizer:
    def __init__(self):
        kind = type(self)
        if not hasattr(kind.step, "__wrapped__"):
            kind.step = hooked(kind.step)
            kind.extra = hooked(kind.step)
"""


def test_what_a_base_of_a_library_does_to_a_class_is_no_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch does with the optimizers of its users, when the first one is made."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "hooking_library.py").write_text(LIBRARY)
    variables = after(
        "from hooking_library import Optimizer, hooked\n"
        "class Mine(Optimizer):\n    def step(self): return 2\nclass Kid(Mine): pass\nMine()\n"
        "class Other:\n    def step(self): return 2\nOther.step = hooked(Other.step)\n"
    )
    assert program_of("Kid", variables, tmp_path)["Kid"]().step() == 2
    with pytest.raises(SpecError, match=r"Other\.step was changed"):
        module_code(["Other"], variables)
    del sys.modules["hooking_library"]


@pytest.mark.parametrize(
    "value",
    [
        [("a", {"at": [(0, 3)] if n % 2 else []}) for n in range(20)],
        [None, (1, 2), (3, (4,)), [5, (6,)], {"a": (7,), "b": [8]}],
        {"a": [], "b": (), "c": [[(1,)], [[1]], []], "d": {"0": (1,)}},
        [(number,) if number % 3 else [number, (number,)] for number in range(50)],
        ([(1,)], [[1]], ((1,),)),
        [[1, [2, {"a": 3}]]],
    ],
)
def test_tuples_are_where_they_were(value: Any, tmp_path: Path) -> None:
    found = program(tmp_path, "import ciao_input", ["value"], {"value": value})
    assert repr(found.value) == repr(value)


def test_the_module_has_little_to_say_of_the_tuples_in_many_rows(tmp_path: Path) -> None:
    rows = [(f"word {n}", {"entities": [(0, 3, "PER")] if n % 2 else []}) for n in range(3000)]
    uneven = [(n,) if n % 2 else [n] for n in range(20_000)]
    variables = {"rows": rows, "few": rows[:2], "uneven": uneven}
    found = program(tmp_path, "import ciao_input", ["rows", "uneven"], variables)
    assert found.rows == rows
    assert found.uneven == [[n] for n in range(20_000)], "their places are too many"
    size = (tmp_path / "ciao_input.py").stat().st_size
    program(tmp_path, "import ciao_input", ["few", "uneven"], variables)
    assert size - (tmp_path / "ciao_input.py").stat().st_size < 10


def program_of(name: str, variables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The variables of the module that a program imports, which Python knows as such."""
    source = deliver(Source(SourceFile("x")), [name], variables)
    for file in source.files:
        (folder / file.path).parent.mkdir(exist_ok=True)
        (folder / file.path).write_bytes(file.data or b"")
    before = sys.modules.pop("ciao_input", None)
    module = types.ModuleType("ciao_input")
    module.__file__ = str(folder / "ciao_input.py")
    sys.modules["ciao_input"] = module
    try:
        text = (folder / "ciao_input.py").read_text()
        exec(compile(text, module.__file__, "exec", dont_inherit=True), vars(module))
    finally:
        sys.modules.pop("ciao_input")
        if before is not None:
            sys.modules["ciao_input"] = before
    return vars(module)


def test_a_definition_in_a_cell_of_a_magic_is_found(tmp_path: Path) -> None:
    variables = after(
        "class K:\n    v = 1\n    def m(self): return 1\ndef f(): return 0\n",
        "%%time\n%precision 3\nclass K:\n    v = 2\n    def m(self): return self.v\n",
        "%%time\ndef f():\n    def inner(): return K().m(), K.v\n    return inner()\n",
        "def f(): return 0\n_f = f\n",
        "%%time\ndef f():\n    def inner(): return K().m(), K.v + 1\n    return inner()\n",
    )
    assert variables["f"]() == (2, 3)
    assert program_of("f", variables, tmp_path)["f"]() == (2, 3)
    # A file of a magic is no definition, and neither is other code of that name.
    text = (
        "def f():\n    def inner(): return K().m(), K.v + 2\n    return inner()\nclass K: v = 3\n"
    )
    variables["In"].append(f"get_ipython().run_cell_magic('writefile', 'x.py', {text!r})\n")
    variables["In"].append(
        f"get_ipython().run_cell_magic('time', '', {text!r})\n".replace("K: ", "Q: ")
    )
    assert program_of("f", variables, tmp_path)["f"]() == (2, 3)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (
            [
                "class B:\n    def m(self): return S()\n",
                "class S(B): n = 1\ndef f(): return B().m().n",
            ],
            1,
        ),
        (["class B:\n    def m(self): return S()\n", "class S(B): n = 1\nf = B\n"], None),
        (
            [
                "def s(): return 1\nold = s\n",
                "def s(): return old() + 1\n",
                "def f(): return s() + old()",
            ],
            3,
        ),
        (["def s(): return 1\nold = s\n", "s = 10\n", "def f(): return s + old()\n"], 11),
        (["def s(): return 1\nalso = s\n", "def f(): return s is also\n"], True),
        (["class A: n = 1\nOld = A\n", "class A(Old): m = Old.n + 1\n", "def f(): return A.m"], 2),
        (
            [
                "names = []\ndef key(g): return g.__name__\n"
                "def known(g):\n    names.append(key(g))\n    return g\n",
                "@known\ndef f(): return names\n",
            ],
            ["f"],
        ),
        (
            [
                "class A:\n    n = 1\n    def m(self): return 1\nfirst = A\n",
                "class A:\n    n = 2\n    def m(self): return 2\n",
                "class A(first):\n    n = 1\n    def m(self): return super().m() + 2\n",
                "def f(): return A().m()\n",
            ],
            3,
        ),
        (["def z(x): return x\n", "def f(g=z): return g(3)\n"], 3),
    ],
)
def test_each_definition_comes_after_what_it_needs_at_once(
    cells: list[str], expected: Any, tmp_path: Path
) -> None:
    """And what only its calls need may come later: a method may return a subclass."""
    variables = after(*cells)
    variables["names"] = []
    found = program_of("f", variables, tmp_path)["f"]
    assert expected is None or found() == expected


def test_a_class_that_builds_upon_an_older_one_of_its_name_is_refused() -> None:
    variables = after("class A:\n    n = 1\n", "class A(A):\n    def m(self): return 2\n")
    with pytest.raises(SpecError, match="A builds upon an older A") as caught:
        deliver(Source(SourceFile("x")), ["A"], variables)
    assert caught.value.hint == "Give the older one another name."


def test_what_a_module_has_loaded_again_is_imported_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = "K = 1\nclass C:\n    def m(self): return K\ndef h(): return K\n"
    (tmp_path / "loaded_again.py").write_text(text)
    variables = after("from loaded_again import C, h\ndef f(): return h(), C().m()\n")
    (tmp_path / "loaded_again.py").write_text("# newer\n" + text)
    importlib.reload(sys.modules["loaded_again"])
    lines = module_code(["f"], variables).splitlines()
    assert lines[:2] == ["from loaded_again import C", "from loaded_again import h"]
    # A wrapper that takes the name of the function is another one.
    variables = after(TIMED, "from loaded_again import h\nh = timed(h)\ndef f(): return h()\n")
    with pytest.raises(SpecError, match="another function wraps h"):
        module_code(["f"], variables)
    del sys.modules["loaded_again"]


def test_submodules_that_the_code_uses_are_imported() -> None:
    variables = after(
        "import xml.etree.ElementTree\nimport concurrent as c, concurrent.futures\n"
        "def f(x):\n    return xml.etree.ElementTree.fromstring(x).tag, c.futures, xml.gone\n"
    )
    lines = module_code(["f"], variables).split("\n\n")[0].splitlines()
    assert sorted(lines) == [
        "import concurrent as c",
        "import concurrent.futures as _submodule",
        "import xml as xml",
        "import xml.etree.ElementTree",
    ]
