"""The plain parts of tests/cluster: order of steps, the cache, names."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path

import pytest

from tests.cluster import addons, build, extras, images, pins, programs, recipes, store
from tests.cluster.commands import run
from tests.cluster.debian import Layer
from tests.cluster.errors import ClusterError
from tests.cluster.extras import EXTRAS
from tests.cluster.namespace import Namespace
from tests.cluster.sockets import connect
from tests.cluster.tasks import Task
from tests.cluster.tasks import run as run_tasks


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CIAO_CLUSTER_CACHE", str(tmp_path))
    return tmp_path


def test_steps_run_after_those_they_need_and_side_by_side_otherwise() -> None:
    done: list[str] = []
    meeting = threading.Barrier(2, timeout=60)  # breaks unless both are there at once

    def step(name: str, meets: bool = False) -> Task:
        def work() -> None:
            if meets:
                meeting.wait()
            done.append(name)

        after = {"c": ("a", "b"), "d": ("c",)}.get(name, ())
        return Task(name, work, after)

    run_tasks([step("d"), step("c"), step("a", True), step("b", True)], say=lambda _: None)
    assert sorted(done[:2]) == ["a", "b"]
    assert done[2:] == ["c", "d"]


def test_a_step_that_fails_ends_it_and_later_ones_never_start() -> None:
    started: list[str] = []

    def fail() -> None:
        raise ClusterError("no network")

    tasks = [Task("a", fail), Task("b", lambda: started.append("b"), ("a",))]
    with pytest.raises(ClusterError, match="no network"):
        run_tasks(tasks, say=lambda _: None)
    assert started == []


def test_steps_that_wait_for_each_other_are_an_error_and_no_hang() -> None:
    tasks = [Task("a", lambda: None, ("b",)), Task("b", lambda: None, ("a",))]
    with pytest.raises(ValueError, match="a, b"):
        run_tasks(tasks, say=lambda _: None)


def test_what_is_built_is_built_once_and_whole_or_not_at_all(cache: Path) -> None:
    built: list[Path] = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "file").write_text("x")
        if len(built) == 1:
            raise ClusterError("half-way")

    with pytest.raises(ClusterError):
        store.make("thing", "key", build)
    assert store.made("thing", "key") is None
    folder = store.make("thing", "key", build)
    assert store.make("thing", "key", build) == folder
    assert len(built) == 2
    assert (folder / "file").read_text() == "x"
    store.sweep()
    assert [path.name for path in cache.iterdir()] == ["thing-key"]


def test_another_pin_or_file_is_another_name_in_the_cache(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("v1")
    first = store.digest(tmp_path, ("a",))
    assert store.digest(tmp_path, ("a",)) == first
    assert store.digest(tmp_path, ("b",)) != first
    (tmp_path / "go.mod").write_text("v2")
    assert store.digest(tmp_path, ("a",)) != first
    below = Layer("below", packages=("x",))
    changed = Layer("below", packages=("y",))
    assert Layer("above", (below,)).key != Layer("above", (changed,)).key


def test_versions_come_from_the_modules() -> None:
    assert pins.KUBERNETES.startswith("v1.34.")
    assert (pins.OPERATOR, pins.OLDER_OPERATOR) == ("v1.9.3", "v1.8.1")
    assert pins.GO >= (1, 24)
    with pytest.raises(LookupError, match=r"modules/kubernetes/go\.mod"):
        pins.version("example.com/none", "kubernetes")


def test_each_module_pins_what_it_needs() -> None:
    asked = (name for extra in EXTRAS.values() for name in extra.modules)
    every = (*programs.NAMES, *asked, *programs.FOR_BENCHMARKS)
    assert sorted(every) == sorted(folder.name for folder in pins.MODULES.iterdir())
    for name in every:
        assert (pins.MODULES / name / "go.sum").stat().st_size > 1_000


def test_names_of_images_and_layers_are_all_different() -> None:
    every = [*recipes.IMAGES, *(image for extra in EXTRAS.values() for image in extra.images)]
    assert len({image.name for image in every}) == len(every)
    layers = {layer.name: layer for i in every if i.layer for layer in i.layer.stack}
    assert len({layer.key for layer in layers.values()}) == len(layers)


@pytest.mark.parametrize("name", ["coredns", "kube-router"])
def test_what_is_shared_with_kubernetes_has_its_version_and_is_compiled_once(name: str) -> None:
    shared = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/kube-openapi")
    shared += ("golang.org/x/net", "golang.org/x/sys", "golang.org/x/term", "golang.org/x/text")
    shared += ("google.golang.org/protobuf", "github.com/go-logr/logr")
    if name == "coredns":
        shared += ("google.golang.org/grpc",)
    for module in shared:
        assert _required(name, module) == _required("kubernetes", module)


def _required(name: str, module: str) -> str:
    text = (pins.MODULES / name / "go.mod").read_text()
    blocks = re.findall(r"^require \((.*?)^\)", text, re.M | re.S)  # what it excludes is no such
    (found,) = re.findall(rf"^\t{re.escape(module)} (v\S+)", "".join(blocks), re.M)
    return str(found)


def test_coredns_has_the_plugins_that_its_settings_name() -> None:
    named = set(re.findall(r"^    (\w+)", addons._COREFILE, re.M))
    program = (pins.MODULES / "coredns" / "coredns" / "main.go").read_text()
    assert named == set(re.findall(r"coredns/plugin/(\w+)", program))


class _Test:
    def __init__(self, *fixturenames: str) -> None:
        self.fixturenames = fixturenames


def test_extras_are_those_that_the_selected_tests_have_fixtures_of() -> None:
    assert extras.wanted([]) == ()
    assert extras.wanted([_Test("namespace", "cluster"), object()]) == ()
    tests = [_Test("with_kwok", "cluster"), _Test("with_mpi"), _Test("with_kwok")]
    assert extras.wanted(tests) == ("mpi", "kwok")
    with pytest.raises(ClusterError, match="no extra is named with_kwok") as failure:
        extras.find(["mpi", "with_kwok"])
    assert "there are frameworks, mpi" in str(failure.value)


def test_an_extra_needs_the_programs_of_its_images_and_each_layer_after_those_below() -> None:
    assert EXTRAS["kaniko"].modules == ("kaniko",)
    assert EXTRAS["trainer"].modules == ("trainer",)  # of both its images
    assert EXTRAS["older_operator"].modules == ("older-operator",)
    stack = EXTRAS["frameworks"].stack
    assert stack == (
        recipes.BASE, recipes.PYTHON, recipes.SCIENCE, recipes.TENSORFLOW, recipes.PYTORCH
    )  # fmt: skip
    assert extras.owner(recipes.KANIKO) == "kaniko"
    assert extras.owner(recipes.OPERATOR) is None


def test_what_some_slices_alone_need_is_not_built_for_every_run() -> None:
    rare = {"kueue", "kwok", "metrics_server", "mpi_operator", "older_operator", "policies"}
    assert set(EXTRAS) - set(extras.USUAL) == {*rare, "trainer"}
    assert set(extras.of_slices(["rig"])) == {"kwok", "older_operator"}
    assert extras.of_slices(["docs"]) == ()


@pytest.fixture
def planned(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the steps that a build would take, in place of taking them."""
    planned: list[str] = []

    def note(tasks: list[Task], **_: object) -> None:
        names = {task.name for task in tasks}
        assert all(names >= set(task.after) for task in tasks)
        run_tasks([Task(t.name, lambda: None, t.after) for t in tasks], say=lambda _: None)
        planned.extend(task.name for task in tasks)

    monkeypatch.setattr(build, "run", note)
    return planned


def test_what_no_selected_test_asks_for_is_not_built(planned: list[str]) -> None:
    build.everything()
    assert [name for name in planned if name.startswith("programs")] == [
        "programs: kubernetes", "programs: operator", "programs: coredns"
    ]  # fmt: skip
    assert {name for name in planned if name.startswith("layer")} == {
        "layer: base", "layer: python", "layer: s2i", "layer: tools"
    }  # fmt: skip
    assert planned[-2:] == ["registry", "the node's images"]


def test_what_selected_tests_ask_for_is_built_once_and_keeps_nobody_waiting(
    planned: list[str],
) -> None:
    build.everything(extras.find(["frameworks", "kaniko", "kernel", "enterprise_gateway"]))
    assert len(planned) == len(set(planned))
    late = planned[planned.index("the node's images") + 1 :]
    assert late[0] == "programs: kaniko"
    assert {"layer: tensorflow", "layer: pytorch"}.isdisjoint(late)  # the node has them unpacked
    assert {"layer: kernel", "layer: gateway", "tree: bookworm"} <= set(late)


def test_a_running_cluster_gets_an_extra_and_nothing_else_is_built(planned: list[str]) -> None:
    build.everything(extras.find(["kwok"]), node=False)
    assert planned == ["programs: kwok"]


def test_what_is_on_the_node_from_the_start_does_not_depend_on_small_extras() -> None:
    plain = build._store_key([])
    assert build._store_key(extras.find(["kaniko", "mpi", "s2i", "kernel"])) == plain
    assert build._store_key(extras.find(["frameworks"])) != plain


def test_an_image_is_in_a_registry_only_when_all_of_it_is(cache: Path, tmp_path: Path) -> None:
    image = recipes.Image("small:1", files=(("etc/word", "one"),))
    storage = tmp_path / "storage"
    repository = storage / "docker/registry/v2/repositories/small"
    assert not images.written(image, storage)
    images.write(image, storage)
    assert images.written(image, storage)
    blobs = {p: p.stat().st_ino for p in (storage / "docker/registry/v2/blobs").rglob("data")}
    assert len(blobs) == 3  # its layer, its configuration, its manifest
    assert (repository / "_manifests/tags/1/current/link").read_text().startswith("sha256:")
    assert not list(storage.rglob("part"))
    images.write(image, storage)  # no file that is there is written again: it may be the cache's
    assert {path: path.stat().st_ino for path in blobs} == blobs


def test_who_holds_the_caches_lock_may_ask_for_it_again(cache: Path) -> None:
    order: list[str] = []

    def other() -> None:
        with store.lock():
            order.append("other")

    with store.lock():
        thread = threading.Thread(target=other)
        thread.start()
        with store.lock():
            order.append("mine")
        order.append("still mine")
    thread.join()
    assert order == ["mine", "still mine", "other"]


def test_a_program_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ClusterError, match=r"ended with 3.*\n.*no such thing") as failure:
        run(["sh", "-c", "echo no such thing >&2; exit 3"], log=log, hint="look")
    assert "look" in str(failure.value)
    assert "no such thing" in log.read_text()
    with pytest.raises(ClusterError, match="not-there is not on this machine"):
        run(["not-there"])


def test_a_socket_is_reached_however_deep_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        connect(folder / "socket", seconds=2)
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(folder)
        server.bind("socket")
        server.listen()
        with connect(folder / "socket", seconds=2) as client:
            client.sendall(b"hello")
            assert server.accept()[0].recv(5) == b"hello"


def test_a_namespaces_name_tells_its_test_and_is_a_valid_name() -> None:
    name = Namespace(None, "test_A_Long_Name[param=1]-" + "x" * 80).name  # type: ignore[arg-type]
    assert name.startswith("a-long-name-param-1-")
    assert len(name) <= 63
    assert name == name.lower()
    assert Namespace(None, "test_a").name != Namespace(None, "test_a").name  # type: ignore[arg-type]


def test_the_tags_of_gateway_images_change_with_layers_configuration_and_format(
    tmp_path: Path,
) -> None:
    """A node keeps an image by its tag: an old one would be used after the format has changed."""
    (wheel := tmp_path / "ciao.whl").write_bytes(b"wheel")
    made = [recipes.kernel(wheel), recipes.jupyter(wheel), recipes.ENTERPRISE_GATEWAY]
    for image in made:
        _, _, tag = image.name.partition(":")
        assert image.layer is not None
        assert tag == recipes.tag(image.layer, image.config)
        assert tag != recipes.tag(image.layer, image.config, recipes.FORMAT + 1)
        assert tag != recipes.tag(recipes.BASE, image.config)
        assert tag != recipes.tag(image.layer, {**image.config, "User": "1"})
