"""``ciao install``: register the kernel with Jupyter."""

from __future__ import annotations

import argparse
import sys

from ciao_kernel.commands import Caller, kernelspec
from ciao_kernel.errors import EnvironmentFault, UsageError


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the options for the place and the names of the kernelspec."""
    places(verb)
    verb.add_argument("--display-name", help="name that launchers show")


def places(verb: argparse.ArgumentParser) -> None:
    """Add the options for the place and the name of a kernelspec, also for ``uninstall``."""
    where = verb.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user")
    where.add_argument("--sys-prefix", action="store_true", help="for this Python environment")
    where.add_argument("--prefix", metavar="P", help="under P/share/jupyter")
    verb.add_argument("--name", default="ciao", help="name of the kernelspec")


def prefix(args: argparse.Namespace) -> str | None:
    """Return the prefix that the options select."""
    return sys.prefix if args.sys_prefix else args.prefix


def no_home() -> EnvironmentFault:
    """Return the error of a user without a home folder, also for ``uninstall``."""
    fault, remedy = kernelspec.NO_HOME
    return EnvironmentFault(f"{fault}.", f"{remedy[0].upper()}{remedy[1:]}.")


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Install the kernelspec, and write its folder."""
    try:
        path = kernelspec.install(
            user=args.user, prefix=prefix(args), name=args.name, display_name=args.display_name
        )
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    except PermissionError as error:
        hint = "" if args.user else "`ciao install --user` installs it only for you."
        raise EnvironmentFault(f"{error}.", hint) from error
    except OSError as error:
        raise EnvironmentFault(f"{error}.") from error
    except RuntimeError as error:
        raise no_home() from error
    caller.write(f"installed the kernelspec {args.name} in {path}\n")
