"""Builds what a cluster is made of, side by side: programs, trees, images, the node's store."""

import shutil
from functools import partial
from pathlib import Path

from tests.cluster import images, programs, recipes
from tests.cluster.layout import Layout, cache, layout
from tests.cluster.node import Node
from tests.cluster.parts import ENVIRONMENT, parts, write_settings
from tests.cluster.store import digest, made, make
from tests.cluster.tasks import Task, run
from tests.cluster.waiting import until


def ready(also: tuple[str, ...] = ()) -> bool:
    """Tell whether everything is in the cache, and these programs besides."""
    return (
        all(programs.ready(name) for name in (*programs.NAMES, *also))
        and recipes.NODE.ready()
        and images.registry_ready()
        and made("containerd", _store_key()) is not None
    )


def everything(also: tuple[str, ...] = ()) -> None:
    """Build all that is not in the cache yet, and these programs besides.

    Logs of the steps are kept beside it.
    """
    logs = cache() / "logs"
    shutil.rmtree(logs, ignore_errors=True)

    def log(name: str) -> Path:
        return logs / f"{name}.log"

    tasks: list[Task] = []
    before: tuple[str, ...] = ()

    def build_programs(names: tuple[str, ...]) -> None:
        nonlocal before
        for name in names:  # one after another: each build uses all cores by itself
            if not programs.ready(name):
                work = partial(programs.programs, name, log(name))
                tasks.append(Task(f"programs: {name}", work, before))
                before = (f"programs: {name}",)

    build_programs(programs.NAMES)
    names = set()
    for layer in recipes.KEPT:
        if not layer.ready():
            names.add(layer.name)
            after = tuple(f"tree: {low.name}" for low in layer.below if low.name in names)
            tasks.append(Task(f"tree: {layer.name}", partial(layer.folder, log(layer.name)), after))
    for layer in {image.layer for image in recipes.IMAGES if image.layer}:
        if layer not in recipes.KEPT and not images.packed_ready(layer):
            after = tuple(f"tree: {low.name}" for low in layer.below if low.name in names)
            work = partial(images.packed, layer, log(f"layer-{layer.name}"))
            tasks.append(Task(f"layer: {layer.name}", work, after))
    if not images.registry_ready():
        after = tuple(task.name for task in tasks)
        tasks.append(Task("registry", images.registry, after))
    if made("containerd", _store_key()) is None:
        after = tuple(task.name for task in tasks)
        tasks.append(Task("the node's images", store, after))
    build_programs(also)  # last, as no image waits for them
    # One write a line: threads speak at the same time.
    run(tasks, say=lambda text: print(f"{text}\n", end="", flush=True))


def store() -> Path:
    """Return containerd's folder with all images unpacked, made by a node without Kubernetes."""

    def build(folder: Path) -> None:
        at = layout("build")
        node = Node(at)
        node.stop()
        try:
            prepare(at)
            (folder / "root").mkdir()
            node.start(root(), mounts(at, folder / "root"))
            names = [f"{at.registry}/{i.name}" for i in recipes.IMAGES if i.preload]
            for name in ("registry", "containerd"):
                part = parts(at)[name]
                node.launch(name, part.argv, ENVIRONMENT)
                until(part.healthy, f"{name} to answer", 30)
            node.run(["/opt/ciao/kubernetes/pull", "unix:///control/containerd.sock", *names])
        finally:
            node.stop()

    return make("containerd", _store_key(), build)


def _store_key() -> str:
    return digest(images.key(), recipes.NODE.key, [i.name for i in recipes.IMAGES if i.preload])


def root() -> list[Path]:
    """Return the trees of the node's root, uppermost first."""
    return [layer.folder() for layer in recipes.NODE.stack]


def prepare(at: Layout) -> None:
    """Write what the parts read."""
    etc = at.folder / "etc"
    etc.mkdir(parents=True)
    write_settings(at, etc)
    for name in ("registry-upper", "registry-work"):
        (at.folder / name).mkdir()


def mounts(at: Layout, containerd: Path) -> list[list[str]]:
    """Return what is mounted on the node: programs, settings, images."""
    overlay = (
        f"lowerdir={images.registry()},upperdir={at.folder}/registry-upper,"
        f"workdir={at.folder}/registry-work"
    )
    return [
        *[
            ["--bind", "-o", "ro", str(programs.programs(name)), f"/opt/ciao/{name}"]
            for name in ("kubernetes", "kwok")
        ],
        ["--bind", str(at.folder / "etc"), "/etc/kubernetes"],
        # An overlay: what tests push goes with the cluster, and the cache stays what it was.
        ["-t", "overlay", "overlay", "-o", overlay, "/var/lib/registry"],
        ["--bind", str(containerd), "/var/lib/containerd"],
    ]
