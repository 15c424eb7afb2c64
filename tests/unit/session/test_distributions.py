"""The names under which pip knows imported modules."""

from __future__ import annotations

import pytest

from ciao_kernel.session.failure.distributions import _NAMES, _SAME, distribution, similar


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("sklearn.linear_model", "scikit-learn"),
        ("cv2", "opencv-python-headless"),
        ("PIL.Image", "pillow"),
        ("yaml", "PyYAML"),
        ("google.cloud.storage.blob", "google-cloud-storage"),
        ("google.protobuf", "protobuf"),
        ("google.unheard", None),
        ("hydra", "hydra-core"),  # hydra itself is another project
        ("orbax.checkpoint", "orbax-checkpoint"),
        ("tf_keras", "tf-keras"),
        ("transformers.models", "transformers"),
        ("IPython", "ipython"),  # as its own metadata say, because this Python has it
        ("unheard_of", None),
    ],
)
def test_a_module_has_the_name_that_pip_knows(module: str, name: str | None) -> None:
    assert distribution(module) == name


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("tensorboar", "tensorboard"),  # and not tensorboardX, which is less similar
        ("pandasqlxx", ""),
        ("_threed", ""),  # private, as _thread is
        ("googleprotobuf", ""),  # similar to google.protobuf, which is inside a module
    ],
)
def test_a_mistyped_module_is_that_of_the_most_similar_public_name(module: str, name: str) -> None:
    assert similar(module) == name


def test_the_two_tables_do_not_overlap() -> None:
    assert not _SAME.intersection(_NAMES)
