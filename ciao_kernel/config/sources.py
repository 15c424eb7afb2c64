"""Sources of settings: two files and the environment."""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ciao_kernel.config.misplaced import misplaced_setting
from ciao_kernel.config.settings import Settings, names
from ciao_kernel.config.user_file import user_file
from ciao_kernel.errors import SettingError


def config_files() -> tuple[Path, Path]:
    """Return the administrator's file and the user's file."""
    return Path("/etc/ciao/config.toml"), user_file()


def load(
    files: Iterable[Path] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of all places except the cell and the kernel.

    Args:
        files: Configuration files, weakest first; None means the usual two.
        environment: The variables, ``CIAO_*`` among them; None means ``os.environ``.

    Raises:
        SettingError: A file cannot be read, or a name or value in one of the places is wrong.
    """
    settings, faults = load_with_errors(files, environment)
    if faults:
        raise faults[0]
    return settings


def load_with_errors(
    files: Iterable[Path] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Settings, list[SettingError]]:
    """Read the settings like :func:`load`, but skip wrong places and return their errors.

    For commands that must work despite wrong settings, such as ``ciao doctor``.
    """
    settings, faults = Settings(), []
    variables = os.environ if environment is None else environment
    sources: list[tuple[str, Callable[[], Mapping[str, Any]]]] = [
        (str(file), functools.partial(_read, file))
        for file in (config_files() if files is None else files)
    ]
    for name in names():
        variable = f"CIAO_{name.upper()}"
        if variable in variables:
            sources.append((f"${variable}", functools.partial(dict, {name: variables[variable]})))
    for origin, read in sources:
        try:
            settings = settings.with_values(read(), origin)
        except SettingError as error:
            faults.append(error)
    return settings, faults + list(_misspelt_variables(variables))


def _misspelt_variables(variables: Mapping[str, str]) -> Iterator[SettingError]:
    """Yield an error for each variable whose name is a slip in the name of a setting.

    Other names are left alone: users have variables of their own, ciao sets some for replicas, and
    Kubernetes sets ``CIAO_SERVICE_HOST`` in each pod if there is a Service named ``ciao``.
    """
    known = {f"CIAO_{name.upper()}" for name in names()}
    for variable in sorted(variables):
        if not variable.startswith("CIAO_") or variable in known:
            continue
        if intended := next((name for name in sorted(known) if _is_typo(variable, name)), ""):
            yield SettingError(
                f"${variable}: there is no such setting.",
                f"Did you mean {intended}? If not, give the variable another name.",
            )


def _is_typo(variable: str, name: str) -> bool:
    """Return whether only letters of one word, or the underscores, tell two names apart."""
    if variable.replace("_", "") == name.replace("_", ""):
        return True
    if variable.startswith(name) or name.startswith(variable):  # CIAO_IMAGE, CIAO_STORAGE_DIR
        return False
    words, others = variable.split("_"), name.split("_")
    if len(words) != len(others):
        return False
    different = [pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]]
    ratios = [difflib.SequenceMatcher(None, *pair).ratio() for pair in different]
    return len(ratios) == 1 and ratios[0] > 0.85


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_bytes().decode()
        import tomllib  # most users have no such file

        values = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{file} cannot be read: {error}", 'Write lines such as: backend = "local"'
        ) from None
    if misplaced := misplaced_setting(text, values, names(), str(file)):
        raise misplaced
    return values
