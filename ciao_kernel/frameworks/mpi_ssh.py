"""The way of the launcher into its workers by ssh, for clusters with mpi-operator.

That operator gives all pods of a job one key, and nothing else. So each worker starts a server on a
port that needs no privilege, and writes down its variables, which the server would not pass on. The
launcher's agent takes the place of the training operator's: it gets a host and a command.
"""

from __future__ import annotations

KEYS = "/ciao-ssh"
"""Folder in which the operator mounts the key."""
_PORT = 2222

_PREPARE = f"""\
mkdir -p "$CIAO_MPI/ssh"
(umask 077; cp "$CIAO_MPI_SSH"/* "$CIAO_MPI/ssh")  # ssh refuses a key that others may read
cat >"$CIAO_MPI_AGENT" <<'end of the agent'
#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=$1
shift
case $host in *.*) ;; *) host=$host.$CIAO_JOB ;; esac
exec ssh -p {_PORT} -i "$CIAO_MPI/ssh/id_rsa" -o StrictHostKeyChecking=no \\
    -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes -o ConnectTimeout=10 \\
    "$host" ". $CIAO_MPI/env; $*"
end of the agent
chmod 700 "$CIAO_MPI_AGENT"
"""
"""Writes the agent, which mpirun's helpers in the workers look for too."""

SERVE = f"""\
if [ -n "$CIAO_MPI_SSH" ]; then
{_PREPARE}\
    server=`command -v sshd || echo /usr/sbin/sshd`
    if [ ! -x "$server" ]; then
        echo "there is no sshd in this image: mpi-operator starts ranks by ssh."
        exit 127
    fi
    mkdir -p /run/sshd 2>/dev/null  # root's needs it
    export -p >"$CIAO_MPI/env"
    "$server" -D -e -f /dev/null -p {_PORT} -h "$CIAO_MPI/ssh/id_rsa" -o PidFile=none \\
        -o AuthorizedKeysFile="$CIAO_MPI/ssh/authorized_keys" -o StrictModes=no -o UsePAM=no \\
        -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o LogLevel=ERROR \\
        -o MaxStartups=1000 &
    server=$!
fi
"""
"""Part of a worker's program: starts the server if the operator has given a key."""

MAKE_AGENT = f"""\
if os.environ.get("CIAO_MPI_SSH"):
    subprocess.check_call(["sh", "-c", {_PREPARE!r}])
"""
"""Part of the launcher's program: writes the agent."""


def variables(folder: str) -> dict[str, str]:
    """Return the variables of both roles, beside those of Open MPI.

    Args:
        folder: ``CIAO_MPI``, which every replica has for itself.
    """
    agent = f"{folder}/agent"
    return {
        "CIAO_MPI_SSH": KEYS,
        "CIAO_MPI_AGENT": agent,
        "OMPI_MCA_plm_rsh_agent": agent,
        "PRTE_MCA_plm_ssh_agent": agent,
    }
