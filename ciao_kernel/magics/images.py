"""The directives that say what the replicas need beside the cell's code."""

from __future__ import annotations

from ciao_kernel.magics import kinds
from ciao_kernel.magics.cluster import ImageName
from ciao_kernel.magics.directive import Directive


def directives() -> list[Directive]:
    """The table's entries, in the order in which lists show them."""
    return [
        Directive(
            "packages",
            "build.packages",
            kinds.Words("packages as pip takes them, such as pandas or scikit-learn==1.7.2"),
            "Python packages that the code needs and its image or environment may lack.",
            "%packages=pandas scikit-learn==1.7.2",
            adds_up=True,
        ),
        Directive(
            "requirements",
            "build.requirements",
            kinds.Word("a file of requirements beside the notebook", kinds.Offer.FILES),
            "A file that lists such packages, as for pip install -r.",
            "%requirements=requirements.txt",
        ),
        Directive(
            "pipIndex",
            "build.pip_index",
            kinds.Word("the address of a package index"),
            "Where pip looks for packages, instead of its own setting.",
            "%pipIndex=https://pypi.example.com/simple",
        ),
        Directive(
            "base",
            "build.base",
            ImageName(),
            "Image that a builder begins with; else the job's own.",
            "%base=python:3.13-slim",
        ),
        Directive(
            "registry",
            "build.registry",
            ImageName("a repository such as registry.example.com/team/cells"),
            "Repository that gets the image that a builder makes.",
            "%registry=registry.example.com/team/cells",
        ),
    ]
