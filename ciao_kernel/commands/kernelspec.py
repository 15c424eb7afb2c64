"""Install and remove Jupyter kernelspecs that start this kernel.

The spec's files (kernel.json, logos) exist once in the repository, in ``kernelspec/``. A wheel
contains them as data files, so a plain ``pip install`` registers the kernel with Jupyter. This
module is for all other cases: editable installs, the user's own folder, another prefix,
a second name.

A starting kernel does not import this module.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

DEFAULT_NAME = "ciao"
_DISTRIBUTION = "ciao-kernel"
_MODULE = "ciao_kernel"
NO_HOME = (
    "Jupyter needs a home folder, and this user has none",
    "set HOME to a folder that you may write to",
)
"""Fault and remedy where Jupyter raises RuntimeError: no HOME, and no entry in passwd(5)."""
_NAME = re.compile(r"[a-z0-9._-]+")


def install(
    *,
    user: bool = False,
    prefix: str | None = None,
    name: str = DEFAULT_NAME,
    display_name: str | None = None,
) -> Path:
    """Install a kernelspec that runs this Python, and replace a spec of the same name.

    Args:
        user: Install for the current user instead of for the whole system.
        prefix: Install under ``PREFIX/share/jupyter/kernels``; ``sys.prefix`` means this
            environment.
        name: The kernel's name, as in ``jupyter console --kernel NAME``. Jupyter keeps
            names in lower case.
        display_name: The name that a launcher shows. By default "Ciao", with any other name in
            parentheses, so that two specs can be distinguished.

    Returns:
        The folder that was written.

    Raises:
        ValueError: The name is not a valid kernel name, both places were given, or another
            program's kernelspec has that name.
        FileNotFoundError: This installation lacks the spec's files.
        PermissionError: The folder cannot be written.
        RuntimeError: :data:`NO_HOME`.
    """
    name = _checked_name(name)
    folder = _kernel_folders(user=user, prefix=prefix)[0] / name
    if folder.is_dir() and not _is_ours(folder):
        # Jupyter removes the first spec of that name in its path, which may be in another folder.
        removes = _manager().find_kernel_specs().get(name) == str(folder)
        remedy = f", or remove it by `jupyter kernelspec remove {name}`" if removes else ""
        raise ValueError(f"{folder} contains another kernel; choose another name{remedy}")
    manager = _manager()
    # Through a temporary folder, because kernel.json changes, and because the source is the
    # destination when a wheel's own spec is installed over itself.
    with tempfile.TemporaryDirectory(prefix="ciao-kernelspec-") as scratch:
        staged = Path(scratch) / name
        # copyfile, not copy: the copy of a read-only source must stay removable.
        shutil.copytree(_source(), staged, copy_function=shutil.copyfile)
        spec_file = staged / "kernel.json"
        spec = json.loads(spec_file.read_text(encoding="utf-8"))
        # Jupyter replaces a bare "python" by the *server's* interpreter, which is a different
        # interpreter if the spec is outside this environment.
        spec["argv"][0] = sys.executable
        spec["display_name"] = display_name or _display_name(name)
        spec["metadata"].update(_encryption())
        spec_file.write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
        try:
            installed = manager.install_kernel_spec(
                str(staged), kernel_name=name, user=user, prefix=prefix
            )
        except PermissionError as error:
            raise PermissionError(f"{error.filename or folder} cannot be written") from error
    return Path(installed)


def uninstall(
    name: str = DEFAULT_NAME, *, user: bool = False, prefix: str | None = None
) -> list[Path]:
    """Remove the kernelspecs of that name that :func:`install` made.

    Two kinds of specs are never removed: specs that start another program, and the spec that pip
    installed (it is the source of all others; ``pip uninstall`` removes it).

    Args:
        name: The kernel's name.
        user: Look only in the folder that ``install(user=True)`` uses.
        prefix: Look only under this prefix. Without both, look in every folder of Jupyter.

    Returns:
        The folders that were removed, at least one.

    Raises:
        ValueError: The name is not a valid kernel name, both places were given, or only specs
            were found that are never removed; the message lists them.
        FileNotFoundError: There is no spec of that name; the message lists the folders.
        PermissionError: A folder cannot be removed.
        RuntimeError: :data:`NO_HOME`.
    """
    name = _checked_name(name)
    if user or prefix is not None:
        folders = _kernel_folders(user=user, prefix=prefix)
    else:
        # The dict removes duplicates: JUPYTER_PATH often names a folder that is searched anyway.
        folders = list(dict.fromkeys(Path(folder) for folder in _manager().kernel_dirs))
    found = [folder / name for folder in folders if (folder / name / "kernel.json").is_file()]
    if not found:
        places = ", ".join(str(folder) for folder in folders)
        raise FileNotFoundError(f"there is no kernelspec {name!r} in {places}")

    removed = []
    kept = []
    for folder in found:
        if not _is_ours(folder):
            kept.append(f"{folder} does not run {_MODULE}")
        elif _belongs_to_pip(folder):
            kept.append(f"{folder} is removed by `pip uninstall {_DISTRIBUTION}`")
        else:
            _remove(folder)
            removed.append(folder)
    if not removed:
        raise ValueError("; ".join(kept))
    return removed


def _manager() -> Any:
    """Return Jupyter's manager of kernelspecs (imported late: it costs 0.1 s)."""
    from jupyter_client.kernelspec import KernelSpecManager

    return KernelSpecManager()


def _checked_name(name: str) -> str:
    """Return the name as Jupyter keeps it, or raise ``ValueError``."""
    lowered = name.lower()
    # Jupyter's own rule accepts "." and "..", which are folders, not names.
    if not _NAME.fullmatch(lowered) or not lowered.strip("."):
        raise ValueError(
            f"{name!r} cannot be a kernel's name: letters, digits, '-', '_' and '.' only"
        )
    return lowered


def _display_name(name: str) -> str:
    return "Ciao" if name == DEFAULT_NAME else f"Ciao ({name})"


def _kernel_folders(*, user: bool, prefix: str | None) -> list[Path]:
    """Return a list with the folder of kernels that the options select."""
    if user and prefix is not None:
        raise ValueError("give either user or a prefix, not both")
    if user:
        return [Path(_manager().user_kernel_dir)]
    if prefix is not None:
        if not prefix:
            raise ValueError("the prefix is empty")
        return [Path(prefix).absolute() / "share" / "jupyter" / "kernels"]
    from jupyter_core.paths import SYSTEM_JUPYTER_PATH

    return [Path(SYSTEM_JUPYTER_PATH[0]) / "kernels"]


def _source() -> Path:
    """Return the folder with the spec's files: in the checkout, or where pip put them."""
    checkout = Path(__file__).resolve().parents[2] / "kernelspec"
    # setup.cfg distinguishes a checkout from a package that happens to be called kernelspec.
    if (checkout / "kernel.json").is_file() and (checkout.parent / "setup.cfg").is_file():
        return checkout
    installed = _pip_folder()
    if installed is None:
        raise FileNotFoundError(
            "the files of the kernelspec are missing from this installation; "
            f"reinstall it: pip install --force-reinstall --no-deps {_DISTRIBUTION}"
        )
    return installed


def _pip_folder() -> Path | None:
    """Return the folder of the spec that pip installed, or None (as for editable installs)."""
    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.parts[-3:] == ("kernels", DEFAULT_NAME, "kernel.json"):
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return path.parent
    return None


def _belongs_to_pip(folder: Path) -> bool:
    return folder.resolve() == _pip_folder()


def _is_ours(folder: Path) -> bool:
    """Return whether the spec in that folder starts this kernel (a broken spec does not)."""
    try:
        spec = json.loads((folder / "kernel.json").read_text(encoding="utf-8"))
        return _MODULE in spec["argv"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _encryption() -> dict[str, list[str]]:
    """Return the metadata that allows a server to encrypt its traffic with the kernel.

    It is not in the kernel.json of a wheel, because that spec may start an older ipykernel, which
    cannot encrypt.
    """
    major, minor = (int(part) for part in metadata.version("ipykernel").split(".")[:2])
    return {"supported_encryption": ["curve"]} if (major, minor) >= (7, 3) else {}


def _remove(folder: Path) -> None:
    try:
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)
    except PermissionError as error:
        raise PermissionError(f"{error.filename or folder} cannot be removed") from error
