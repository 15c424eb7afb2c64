"""Settings that name plug-ins: their values are compared with the plug-ins that are installed.

The settings themselves take any name, because a plug-in may be installed later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ciao_kernel.errors import SettingError

if TYPE_CHECKING:
    from ciao_kernel.config import Settings
    from ciao_kernel.session.plugin_registry import Registry

SETTINGS = ("backend", "builder", "framework", "images")
"""Names of these settings."""
OF_LATER = ("images",)
"""Those of them that harm no job before the plug-in is installed."""
_AUTO = "auto"
"""Value of ``backend`` and ``builder`` that requests automatic selection."""


def check(setting: str, settings: Settings, registry: Registry) -> None:
    """Check one of :data:`SETTINGS`.

    Raises:
        SettingError: It names a plug-in that is not installed.
    """
    if found := fault(setting, settings, registry):
        raise found


def fault(setting: str, settings: Settings, registry: Registry) -> SettingError | None:
    """Return the error for one of :data:`SETTINGS`; None if it names what is installed."""
    origin = settings.origins.get(setting, "")
    place = f"{origin}: " if origin else ""
    if setting == "images":
        frameworks = registry.names("frameworks")
        known = {one.lower() for one in frameworks}
        unknown = next((one for one in settings.images if one not in known), None)
        if unknown is None:
            return None
        return SettingError(
            f"{place}images names the framework {unknown!r}, which is not installed here.",
            f"There are: {', '.join(frameworks)}.",
        )
    names = registry.names(f"{setting}s")
    if setting != "framework":
        names = (_AUTO, *names)
    value = getattr(settings, setting)
    if value in ("", *names):
        return None
    return SettingError(
        f"{place}{setting} cannot be {value!r}: expected one of {', '.join(names)}.",
        "`%ciao config` shows all settings.",
    )
