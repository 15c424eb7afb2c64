"""Names that other tools have for what directives do: an unknown name gets the one that is meant.

The likeness of letters would lead to another directive (``%nodes`` to ``%lines``), or to none.
"""

from __future__ import annotations

from ciao_kernel.magics.spelling import key

_MEANT = {
    "worker": "replica replicas node nodes nnodes numNodes numWorkers numReplicas parallelism",
    "volume": "pvc pvcs claim mount mounts volumeMount volumeMounts",
    "deadline": "timeout timeLimit maxRuntime activeDeadlineSeconds",
    "ttl": "ttlSecondsAfterFinished",
    "memory": "ram mem",
    "cpu": "cores processors",
    "packages": "pip pipPackages dependencies",
    "envvar": "env environ environment environmentVariables",
    "envsecret": "secret secrets secretName envFrom",
    "files input": "data dataset datasets",
    "output": "result results artifacts",
    "plot": "metric metrics",
    "context": "cluster kubeContext ctx",
    "imagePullSecret": "pullSecret pullSecrets",
    "command": "cmd entrypoint",
    "gpu": "accelerator accelerators",
    "annotations": "annotate",
}
_OF = {key(word): found.split() for found, known in _MEANT.items() for word in known.split()}


def meant(name: str) -> tuple[str, ...]:
    """Return the directives that do what a name says elsewhere, the likeliest first.

    Args:
        name: The unknown name, without ``%``.
    """
    return tuple(_OF.get(key(name), ()))
