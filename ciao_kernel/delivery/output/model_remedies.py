"""Remedies for models, which are no values for ``%output`` but can be saved to a file."""

from __future__ import annotations

_SAVED = {
    "sklearn": "save it by `joblib.dump({0}, '{0}.joblib')`, and write `%output={0}.joblib`",
    "keras": "save it by `{0}.save('{0}.keras')`, and write `%output={0}.keras`",
    "torch": (
        "save it by `torch.save({0}.state_dict(), '{0}.pt')`, and write `%output={0}.pt`; or name "
        "a variable with `{0}.state_dict()`"
    ),
}


def remedy(name: str, library: object) -> str:
    """Return what to write for a model, to be put behind the reason; "" for any other value.

    Args:
        name: The variable.
        library: The library of its class, as the replica says.
    """
    text = _SAVED.get(library, "") if isinstance(library, str) else ""
    return f": {text.format(name)}" if text else ""
