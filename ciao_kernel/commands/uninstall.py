"""``ciao uninstall``: remove kernelspecs that ``ciao install`` made."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Caller, kernelspec
from ciao_kernel.commands.install import no_home, places, prefix
from ciao_kernel.errors import EnvironmentFault, UsageError


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the options for the place and the name of the kernelspec."""
    places(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Remove the kernelspecs, and write their folders."""
    try:
        removed = kernelspec.uninstall(args.name, user=args.user, prefix=prefix(args))
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    except OSError as error:
        raise EnvironmentFault(f"{error}.") from error
    except RuntimeError as error:
        raise no_home() from error
    for path in removed:
        caller.write(f"removed {path}\n")
