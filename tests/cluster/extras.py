"""What only some tests need, by name: built when a selected test asks for it, and not before.

A test asks for one by a fixture named after it: `with_kaniko`, its own or one that a fixture of it
asks for, or `@pytest.mark.usefixtures("with_mpi")`. tests/e2e/conftest.py makes these fixtures of
the table, and has all of them built before the first test.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.cluster import images, programs, recipes
from tests.cluster.debian import Layer
from tests.cluster.errors import ClusterError
from tests.cluster.recipes import Image

FIXTURE = "with_"
"""What the name of an extra's fixture begins with."""


@dataclass(frozen=True)
class Extra:
    """One of them.

    Args:
        images: that it puts into the registry and on the node.
        programs: names of modules besides those that its images hold.
        layers: below images that tests make themselves.
        slices: those of the tests that alone ask for it, if it takes minutes to build: then it is
            not among all.
    """

    images: tuple[Image, ...] = ()
    programs: tuple[str, ...] = ()
    layers: tuple[Layer, ...] = ()
    slices: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """All modules whose programs it needs."""
        held = (name for one in self.images for name, _, _ in one.programs)
        return tuple(dict.fromkeys((*held, *self.programs)))

    @property
    def stack(self) -> tuple[Layer, ...]:
        """All layers that it needs, each after those that it stands on."""
        tops = (*(one.layer for one in self.images if one.layer), *self.layers)
        return tuple(dict.fromkeys(low for top in tops for low in reversed(top.stack)))

    def ready(self) -> bool:
        """Tell whether all of it is in the cache."""
        return all(programs.ready(name) for name in self.modules) and all(
            images.packed_ready(layer) for layer in self.stack
        )


EXTRAS: Mapping[str, Extra] = {
    "frameworks": Extra(images=recipes.FRAMEWORKS),
    "mpi": Extra(images=(recipes.MPI_IMAGE,)),
    "xgboost": Extra(images=(recipes.XGBOOST_IMAGE,)),
    "jax": Extra(images=(recipes.JAX_IMAGE,)),
    "paddle": Extra(images=(recipes.PADDLE_IMAGE,)),
    "kaniko": Extra(images=(recipes.KANIKO,)),
    "kwok": Extra(programs=("kwok",), slices=("rig",)),
    "policies": Extra(programs=("kube-router",), slices=("gateway",)),
    "kueue": Extra(programs=("kueue",), slices=("gateway",)),
    "metrics_server": Extra(programs=("metrics-server",), slices=("gateway",)),
    "older_operator": Extra(images=(recipes.OLDER_OPERATOR,), slices=("operators", "rig")),
    "trainer": Extra(images=(recipes.JOBSET, recipes.TRAINER), slices=("operators", "gateway")),
    "mpi_operator": Extra(
        images=(recipes.MPI_OPERATOR, recipes.MPI_SSH_IMAGE), slices=("operators",)
    ),
    "s2i": Extra(programs=("s2i",)),
    "kernel": Extra(layers=(recipes.KERNEL,)),
    "enterprise_gateway": Extra(layers=(recipes.KERNEL, recipes.GATEWAY)),
    "jupyter": Extra(layers=(recipes.KERNEL, recipes.JUPYTER)),
}


USUAL = tuple(name for name, extra in EXTRAS.items() if not extra.slices)
"""Those that `all` means."""


def of_slices(names: Iterable[str]) -> tuple[str, ...]:
    """Return the extras of these slices of the tests, besides the usual ones."""
    chosen = set(names)
    return tuple(name for name, extra in EXTRAS.items() if chosen & set(extra.slices))


def find(names: Iterable[str]) -> list[Extra]:
    """Return the extras of these names.

    Raises:
        ClusterError: there is none of a name.
    """
    found = []
    for name in dict.fromkeys(names):
        if name not in EXTRAS:
            raise ClusterError(f"no extra is named {name}", f"there are {', '.join(EXTRAS)}")
        found.append(EXTRAS[name])
    return found


def owner(image: Image) -> str | None:
    """Return the name of the extra that has an image; None for one that every cluster has."""
    return next((name for name, extra in EXTRAS.items() if image in extra.images), None)


def wanted(tests: Iterable[object]) -> tuple[str, ...]:
    """Return the names of the extras that these tests ask for by their fixtures.

    Args:
        tests: pytest's items.
    """
    asked = {name for test in tests for name in getattr(test, "fixturenames", ())}
    return tuple(name for name in EXTRAS if f"{FIXTURE}{name}" in asked)
