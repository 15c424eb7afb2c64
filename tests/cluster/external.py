"""Somebody else's cluster, which CIAO_TEST_KUBECONFIG names. Its parts are not ours to break."""

import os
from pathlib import Path

from tests.cluster.api import Api, api_of
from tests.cluster.commands import run

# What stands in for the images of tests/cluster/recipes.py; CIAO_TEST_IMAGE_NAME changes one.
_IMAGES = {
    "tools": "python:3.13",
    "python": "python:3.13",
    "tensorflow": "tensorflow/tensorflow:2.21.0",
    "pytorch": "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime",
    "mpi": "mpioperator/tensorflow-benchmarks:latest",
    "jax": "nvcr.io/nvidia/jax:25.04-py3",
    "paddle": "ccr-2vdh3abv-pub.cnc.bj.baidubce.com/paddlepaddle/paddle:3.0.0",
    "xgboost": "xgboost:3.4",  # none is published: CIAO_TEST_IMAGE_XGBOOST names one
}


class ExternalCluster:
    """A cluster that runs already, with the training operator in it."""

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl as the kubeconfig's user and return what it printed."""
        return run(self.kubectl_argv(*arguments), text=text, env=self.environment, seconds=150)

    def kubectl_argv(self, *arguments: str) -> list[str]:
        """Return the command line of the kubectl on PATH."""
        return ["kubectl", *arguments]

    @property
    def api(self) -> Api:
        """The API as the kubeconfig's user, without a process for each question if that can be."""
        return api_of(Path(os.environ["CIAO_TEST_KUBECONFIG"]), self.kubectl)

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with the kubeconfig where programs look for it."""
        return os.environ | {"KUBECONFIG": os.environ["CIAO_TEST_KUBECONFIG"]}

    def image(self, name: str) -> str:
        """Return an image with the programs that the recipe of that name has."""
        return os.environ.get(f"CIAO_TEST_IMAGE_{name.upper()}", _IMAGES[name])

    def tails(self) -> dict[str, str]:
        """Return nothing: its logs lie elsewhere."""
        return {}
