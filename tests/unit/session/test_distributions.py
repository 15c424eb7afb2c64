"""The names under which pip knows imported modules."""

from __future__ import annotations

import pytest

from ciao_kernel.session.failure.distributions import _NAMES, _SAME, distribution


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
        ("tf_keras", "tf-keras"),
        ("transformers.models", "transformers"),
        ("IPython", "ipython"),  # as its own metadata say, because this Python has it
        ("unheard_of", None),
    ],
)
def test_a_module_has_the_name_that_pip_knows(module: str, name: str | None) -> None:
    assert distribution(module) == name


def test_the_two_tables_do_not_overlap() -> None:
    assert not _SAME.intersection(_NAMES)
