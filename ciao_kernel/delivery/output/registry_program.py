"""The program of the container that pushes files of ``%output`` to a registry, as one text.

The container takes it from its own specification: modules beside the user's program could be
changed by it, and would then run beside the registry's password.
"""

from __future__ import annotations

import base64
import inspect
import json
import zlib

from ciao_kernel.delivery import replica_program
from ciao_kernel.delivery.output import keeper_program, registry_client, registry_push
from ciao_kernel.delivery.output.registry_push import PROGRAM

_MODULES = {
    "ciao_registry_client": registry_client,
    "ciao_registry_push": registry_push,
}
LOADER = (
    "import base64,json,os,sys,types,zlib\n"
    f"for n,t in json.loads(zlib.decompress(base64.b64decode(os.environ[{PROGRAM!r}]))):\n"
    " m=sys.modules[n]=types.ModuleType(n);exec(compile(t,n,'exec'),m.__dict__)\n"
    f"sys.modules[{keeper_program.NAME!r}].main(sys.argv[1:])"
)
"""Runs the text that the variable :data:`PROGRAM` has."""


def text() -> str:
    """Return the value of the variable."""
    found = [(replica_program.NAME, replica_program.text())]
    found += [(name, inspect.getsource(module)) for name, module in _MODULES.items()]
    found.append((keeper_program.NAME, keeper_program.text()))
    return base64.b64encode(zlib.compress(json.dumps(found).encode(), 9)).decode()
