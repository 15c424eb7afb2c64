"""Distributions that have the modules of another one: tensorflow-cpu is TensorFlow too.

pip compares names of distributions. A package that requires ``tensorflow``, such as tf_keras, would
bring a second TensorFlow of several hundred megabytes, which hides the one that is there. So pip is
told, for one installation, that the other distribution is installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from ciao_kernel.delivery.packages import package_line
from ciao_kernel.delivery.packages.requirements import Requirements

_STANDS_FOR = {
    **dict.fromkeys(
        (
            "intel-tensorflow",
            "tensorflow-cpu",
            "tensorflow-cpu-aws",
            "tensorflow-gpu",
            "tensorflow-intel",
            "tensorflow-macos",
            "tensorflow-rocm",
        ),
        "tensorflow",
    ),
    "onnxruntime-gpu": "onnxruntime",
    "opencv-python-headless": "opencv-python",
    "xgboost-cpu": "xgboost",
}
"""Names of distributions, and of those whose modules and versions they have."""
_OURS = "ciao\n"


def installed(sites: Iterable[str]) -> dict[str, str]:
    """Return the versions of the distributions in question in folders of packages, by name."""
    found: dict[str, str] = {}
    for name in {*_STANDS_FOR, *_STANDS_FOR.values()}:
        start = name.replace("-", "_")
        for site in sites:
            for path in sorted(Path(site).glob(f"{start}-*.dist-info")):
                found.setdefault(name, path.name.removeprefix(f"{start}-")[: -len(".dist-info")])
    return found


def of(have: Mapping[str, str], wanted: Requirements) -> dict[str, str]:
    """Return the distributions that count as installed, with their versions.

    Args:
        have: Versions of the installed distributions, by normalised name.
        wanted: What is to be installed: what it names itself is installed.
    """
    named = {package_line.name(line) for line in wanted.packages}
    return {
        other: have[name]
        for name, other in _STANDS_FOR.items()
        if name in have and other not in have and other not in named
    }


def behind(distribution: str) -> set[str]:
    """Return the names of the distributions that may count as another one."""
    return {name for name, other in _STANDS_FOR.items() if other == distribution}


def note(site: Path, distribution: str, version: str) -> None:
    """Let pip find a distribution in a folder of packages; pip itself can remove it again."""
    folder = _folder(site, distribution, version)
    folder.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
    texts = {"METADATA": metadata, "INSTALLER": _OURS}
    texts["RECORD"] = "".join(f"{folder.name}/{file},,\n" for file in (*texts, "RECORD"))
    for file, text in texts.items():
        (folder / file).write_text(text)


def forget(site: Path, distribution: str, version: str) -> None:
    """Remove what :func:`note` has written, if pip has not replaced it."""
    folder = _folder(site, distribution, version)
    installer = folder / "INSTALLER"
    if installer.is_file() and installer.read_text() == _OURS:
        shutil.rmtree(folder)


def _folder(site: Path, distribution: str, version: str) -> Path:
    return site / f"{distribution.replace('-', '_')}-{version}.dist-info"
