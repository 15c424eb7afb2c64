"""Reads the ``.pth`` files of a folder on the ``PYTHONPATH``.

Python reads them only in its own ``site-packages``. Some packages need theirs: setuptools for
``distutils``, others to patch a library before the program imports it.

This file is ``sitecustomize`` in a folder of packages in an image. The image, or another such
folder, may have a ``sitecustomize`` of its own, which is imported too. It is imported into every
process of a program in such an image, whose Python may be old: it imports little of the standard
library, and is written for Python 3.6 on, which lacks the annotations of ``__future__``.

Its import of the next ``sitecustomize`` is like that of :mod:`~ciao_kernel.delivery.site_start`.
Both have it on purpose: each file is alone in its folder, and this folder stays on the path.
"""

import os
import site
import sys


def start() -> None:
    """Read the files of this folder, and import the next sitecustomize."""
    here = os.path.dirname(os.path.abspath(__file__))
    site.addsitedir(here)  # it is on sys.path, and is not added again
    own = sys.modules.pop("sitecustomize")  # Python imports the next one by the same name
    mine = [one for one in sys.path if os.path.abspath(one or ".") == here]
    at = sys.path.index(mine[0]) if mine else 0
    sys.path[:] = [one for one in sys.path if one not in mine]
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path[at:at] = mine[:1]
        # Python takes the module from there when this one has been run.
        sys.modules.setdefault("sitecustomize", own)


if __name__ == "sitecustomize":
    start()
