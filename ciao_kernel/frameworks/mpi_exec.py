"""The way of the launcher into its workers by exec, for clusters with the training operator.

That operator delivers an agent, a script that calls ``kubectl exec``, and lets the shell trace it.
The traces of several agents come word by word and mix, also with lines of ranks, so nobody could
tell them from what a program says. So each pod of a job takes a copy that traces nothing.

Fact: github.com/kubeflow/trainer, branch release-1.9, pkg/controller.v1/mpi/mpijob_controller.go,
``newConfigMap``: the script's second line is ``set -x``.
"""

from __future__ import annotations

AGENT = "/etc/mpi/kubexec.sh"
"""Runs a command in a worker's pod, in place of ssh."""

_PREPARE = """\
mkdir -p "$CIAO_MPI"
sed '/^set -x$/d' "$CIAO_MPI_EXEC" >"$CIAO_MPI_AGENT"
chmod 700 "$CIAO_MPI_AGENT"
"""
"""Writes the agent, which mpirun's helpers in the workers look for too."""

SERVE = f"""\
if [ -n "$CIAO_MPI_EXEC" ]; then
{_PREPARE}\
fi
"""
"""Part of a worker's program."""

MAKE_AGENT = f"""\
if os.environ.get("CIAO_MPI_EXEC"):
    subprocess.check_call(["sh", "-c", {_PREPARE!r}])
    os.environ["OMPI_MCA_plm_rsh_agent"] = agent  # the operator sets it too, to its own
"""
"""Part of the launcher's program: writes the agent."""


def variables(folder: str) -> dict[str, str]:
    """Return the variables of both roles, beside those of Open MPI.

    Args:
        folder: ``CIAO_MPI``, which every replica has for itself.
    """
    agent = f"{folder}/agent"
    return {
        "CIAO_MPI_EXEC": AGENT,
        "CIAO_MPI_AGENT": agent,
        "PRTE_MCA_plm_ssh_agent": agent,
    }
