"""Builds what a cluster is made of, side by side: programs, trees, images, the node's store."""

import contextlib
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.cluster import images, programs, recipes
from tests.cluster.commands import run as run_program
from tests.cluster.debian import Layer
from tests.cluster.extras import Extra
from tests.cluster.layout import Layout, cache, layout
from tests.cluster.node import Node
from tests.cluster.parts import ENVIRONMENT, parts, write_settings
from tests.cluster.store import digest, made, make
from tests.cluster.tasks import Task, run
from tests.cluster.waiting import until


def ready(extras: Sequence[Extra] = ()) -> bool:
    """Tell whether all that a cluster with these extras is made of is in the cache."""
    return (
        all(programs.ready(name) for name in programs.NAMES)
        and recipes.NODE.ready()
        and images.registry_ready()
        and made("containerd", _store_key(extras)) is not None
        and all(extra.ready() for extra in extras)
    )


def everything(extras: Sequence[Extra] = (), *, node: bool = True) -> None:
    """Build all that is not in the cache yet. Logs of the steps are kept beside it.

    Args:
        extras: what is wanted besides.
        node: whether to build what a node is raised from; one that runs has it.
    """
    logs = cache() / "logs"
    shutil.rmtree(logs, ignore_errors=True)

    def log(name: str) -> Path:
        return logs / f"{name}.log"

    tasks: list[Task] = []
    before: tuple[str, ...] = ()

    def build_programs(names: Sequence[str]) -> None:
        nonlocal before
        # One after another: each build uses all cores by itself, and the later ones take from
        # Go's cache what the earlier ones compiled.
        for name in dict.fromkeys(names):
            if not programs.ready(name):
                work = partial(programs.programs, name, log(name))
                tasks.append(Task(f"programs: {name}", work, before))
                before = (f"programs: {name}",)

    def build_layers(layers: Sequence[Layer]) -> None:
        there = {task.name for task in tasks}
        for layer in dict.fromkeys(layers):
            tree, packed = f"tree: {layer.name}", f"layer: {layer.name}"
            trees = {f"tree: {low.name}" for low in layer.stack}
            if layer in recipes.TREES and tree not in there and not layer.ready():
                work = partial(layer.folder, log(layer.name))
                tasks.append(Task(tree, work, tuple(trees & there)))
                there.add(tree)
            # The node's own is in no image.
            packs = layer != recipes.NODE and packed not in there
            if packs and not images.packed_ready(layer):
                work = partial(images.packed, layer, log(f"layer-{layer.name}"))
                tasks.append(Task(packed, work, tuple(trees & there)))
                there.add(packed)

    if node:
        build_programs(programs.NAMES)
        layers = [image.layer for image in _preloaded(extras) if image.layer]
        build_layers([low for top in (recipes.NODE, *layers) for low in reversed(top.stack)])
        if not images.registry_ready():
            after = tuple(task.name for task in tasks)
            tasks.append(Task("registry", images.registry, after))
        if made("containerd", _store_key(extras)) is None:
            after = tuple(task.name for task in tasks)
            tasks.append(Task("the node's images", partial(store, extras), after))
    # Last, as the node's images do not wait for them.
    build_programs([name for extra in extras for name in extra.modules])
    build_layers([layer for extra in extras for layer in extra.stack])
    # One write a line: threads speak at the same time.
    run(tasks, say=lambda text: print(f"{text}\n", end="", flush=True))


def store(extras: Sequence[Extra] = ()) -> Path:
    """Return containerd's folder with images unpacked, made by a node without Kubernetes."""

    def build(folder: Path) -> None:
        at = layout("build")
        node = Node(at)
        node.stop()
        try:
            preloaded = _preloaded(extras)
            prepare(at, preloaded)
            (folder / "root").mkdir()
            node.start(root(), mounts(at, folder / "root"))
            for name in ("registry", "containerd"):
                part = parts(at)[name]
                node.launch(name, part.argv, ENVIRONMENT)
                until(part.healthy, f"{name} to answer", 30)
            pull(node, preloaded)
        finally:
            node.stop()

    return make("containerd", _store_key(extras), build)


def pull(node: Node, asked: Sequence[recipes.Image]) -> None:
    """Let the node pull images of its registry and unpack them."""
    names = [f"{node.layout.registry}/{image.name}" for image in asked]
    node.run(["/opt/ciao/kubernetes/pull", "unix:///control/containerd.sock", *names])


def _preloaded(extras: Sequence[Extra]) -> list[recipes.Image]:
    """Return what is unpacked on the node from the start.

    Of the extras' images those of the frameworks alone: nearly every run of all tests asks for
    them, and to unpack two gigabytes takes a while. The smaller ones the node pulls when needed.
    """
    asked = [image for extra in extras for image in extra.images if image in recipes.FRAMEWORKS]
    return [*recipes.IMAGES, *asked]


def _store_key(extras: Sequence[Extra]) -> str:
    return digest(images.key(_preloaded(extras)), recipes.NODE.key)


def root() -> list[Path]:
    """Return the trees of the node's root, uppermost first."""
    return [layer.folder() for layer in recipes.NODE.stack]


def prepare(at: Layout, held: Sequence[recipes.Image]) -> None:
    """Write what the parts read.

    Args:
        at: the cluster.
        held: images that the registry has from the start.
    """
    etc = at.folder / "etc"
    etc.mkdir(parents=True)
    write_settings(at, etc)
    for name in ("registry-upper", "registry-work", "programs"):
        (at.folder / name).mkdir()
    # Links instead of copies, which no pod waits for.
    run_program(["cp", "-a", "--link", images.registry(), at.folder / "registry"])
    for image in held:
        if not images.written(image, at.folder / "registry"):
            images.write(image, at.folder / "registry")


def mounts(at: Layout, containerd: Path) -> list[list[str]]:
    """Return what is mounted on the node: programs, settings, images."""
    overlay = (
        f"lowerdir={at.folder}/registry,upperdir={at.folder}/registry-upper,"
        f"workdir={at.folder}/registry-work"
    )
    return [
        ["--bind", "-o", "ro", str(programs.programs("kubernetes")), "/opt/ciao/kubernetes"],
        # Empty until a part is started that is an extra: `lend` puts its program there.
        ["--bind", "-o", "ro", str(at.folder / "programs"), "/opt/ciao/extras"],
        ["--bind", str(at.folder / "etc"), "/etc/kubernetes"],
        # An overlay: what tests push goes with the cluster, and the cache stays what it was.
        ["-t", "overlay", "overlay", "-o", overlay, "/var/lib/registry"],
        ["--bind", str(containerd), "/var/lib/containerd"],
    ]


def lend(at: Layout, module: str) -> None:
    """Put a module's programs where the parts of a running node find them."""
    for program in programs.programs(module).iterdir():
        with contextlib.suppress(FileExistsError):
            (at.folder / "programs" / program.name).hardlink_to(program)
