"""The way of the launcher into its workers without an operator: they ask it for commands.

Nobody gives the pods of a plain Job keys for ssh, or the right to enter each other. So each worker
connects to the launcher, and always has one connection that waits for a command. The launcher's
agent, which mpirun calls in place of ssh, gets a host and a command; a thread of the launcher takes
a waiting connection of that worker and passes the command on, and the output back.

A worker connects to the name of its launcher in its namespace, and the launcher takes a connection
for a worker only from the address of that worker's name there. So both rely on the cluster's names,
as the rendezvous of all other frameworks does.

Facts: docs.prrte.org, "plm/ssh"; docs.open-mpi.org 4.1, ``plm_rsh_agent``: the arguments of the
agent are a host and a command. Without ``no_tree_spawn`` the helpers in workers would start others.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ciao_kernel.model import Address, Replica

_BOTH = """\
def absolute(host):
    # The search goes on to names of other namespaces as long as a pod of this one has no address.
    try:
        with open("/etc/resolv.conf") as file:
            lines = [line.split() for line in file]
    except OSError:
        lines = []
    found = [words[1] for words in lines if words[:1] == ["search"] and len(words) > 1]
    if found and ".svc." in found[-1]:
        return host + "." + found[-1].rstrip(".") + "."
    return host

def keep_alive(connection):
    # A node that is lost says no farewell.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    times = {"KEEPIDLE": 15, "KEEPINTVL": 5, "KEEPCNT": 3, "USER_TIMEOUT": 30000}
    for name, value in times.items():
        if hasattr(socket, "TCP_" + name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_" + name), value)
"""
"""Parts of both programs. The first name in that list is the pod's own namespace: Kubernetes, "DNS
for Services and Pods"."""
_WORKER = f"""\
import base64, json, os, socket, subprocess, threading, time

{_BOTH}
host, _, port = os.environ["CIAO_MPI_RELAY"].rpartition(":")
agent = os.environ["CIAO_MPI_AGENT"]
with open(agent, "w") as file:  # mpirun's helpers look for it, and do not call it
    file.write("#!/bin/sh\\nexit 255\\n")
os.chmod(agent, 0o700)

def run(connection, text):
    lock = threading.Lock()

    def send(kind, data):
        with lock:
            connection.sendall(json.dumps([kind, data]).encode() + b"\\n")

    def copy(stream, kind):
        try:
            for data in iter(lambda: os.read(stream.fileno(), 65536), b""):
                send(kind, base64.b64encode(data).decode())
        except OSError:
            pass  # nobody reads it any more

    with connection:
        process = subprocess.Popen(["sh", "-c", text], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)
        streams = ((process.stdout, 1), (process.stderr, 2))
        readers = [threading.Thread(target=copy, args=one, daemon=True) for one in streams]
        for reader in readers:
            reader.start()
        code = process.wait()
        for reader in readers:
            reader.join(2)  # a daemon of the command may hold its output open
        try:
            send(0, code if code >= 0 else 128 - code)
        except OSError:
            pass

while True:
    try:
        connection = socket.create_connection((absolute(host.strip("[]")), int(port)), 10)
        connection.settimeout(None)
        keep_alive(connection)
        connection.sendall(os.environ["CIAO_REPLICA"].encode() + b"\\n")
        line = connection.makefile("rb", 0).readline()
        if line:
            threading.Thread(target=run, args=(connection, json.loads(line))).start()
            continue
        connection.close()
    except (OSError, ValueError):
        pass
    time.sleep(0.2)
"""
"""Runs in a worker as long as its container does; the launcher's pod may start much later."""

SERVE = f"""\
if [ -n "$CIAO_MPI_RELAY" ]; then
    "$1" -I -S -c {shlex.quote(_WORKER)} &
    server=$!
fi
"""
"""Part of a worker's program, whose first argument is its Python."""

_AGENT = """\
import base64, json, os, socket, sys

host, *words = sys.argv[1:]
own = socket.socket(socket.AF_UNIX)
own.connect(os.environ["CIAO_MPI"] + "/relay")
own.sendall(json.dumps([host, " ".join(words)]).encode() + b"\\n")
for line in own.makefile("rb"):
    kind, data = json.loads(line)
    if not kind:
        os._exit(data)
    data = base64.b64decode(data)
    while data:
        data = data[os.write(kind, data):]
print("the connection to", host, "is lost", file=sys.stderr)
sys.exit(255)
"""

START = f"""\
import base64, json, resource, shlex, socket

# Seconds: for the first words of a connection, for the name of a new pod, for a worker that
# connects again after a command.
HELLO, LOOKUP, AGAIN = 10, 60, 60
{_BOTH}
def start_relay(port, hosts, slots):
    os.makedirs(folder, 0o700, exist_ok=True)
    with open(folder + "/agent.py", "w") as file:
        file.write({_AGENT!r})
    with open(agent, "w") as file:
        words = [sys.executable, "-I", "-S", folder + "/agent.py"]
        file.write("#!/bin/sh\\nexec " + " ".join(map(shlex.quote, words)) + ' "$@"\\n')
    os.chmod(agent, 0o700)
    with open(folder + "/hosts", "w") as file:
        for host in hosts.values():
            print(host.partition(".")[0], "slots=" + slots, file=file)
    known = {{}}
    for worker, host in hosts.items():
        for name in (host, host.partition(".")[0], os.environ["CIAO_JOB"] + "-" + worker):
            known[name] = worker
    idle = {{worker: queue.Queue() for worker in hosts}}
    seen = {{}}  # the address of each worker that has connected once
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def is_at(address, worker):
        address = address.replace("::ffff:", "")
        if seen.get(worker) == address:
            return True
        try:
            known = [found[4][0] for found in socket.getaddrinfo(absolute(hosts[worker]), None)]
        except OSError:
            return False
        if address in known:
            seen[worker] = address
        return address in known

    def hello(connection):
        # One receive after another: each of them has the time that is left.
        until, text = time.monotonic() + HELLO, b""
        while not text.endswith(b"\\n") and len(text) < 300:
            connection.settimeout(max(0.01, until - time.monotonic()))
            data = connection.recv(1)
            if not data:
                break
            text += data
        return text.decode().strip()

    def welcome(connection, address):
        try:
            worker = hello(connection)
            until = time.monotonic() + LOOKUP
            while worker in hosts and time.monotonic() < until:
                if is_at(address, worker):
                    connection.settimeout(None)
                    keep_alive(connection)
                    idle[worker].put(connection)
                    return
                time.sleep(0.5)
        except (OSError, ValueError):
            pass
        connection.close()

    def answer(request):
        try:
            with request:
                host, text = json.loads(request.makefile("rb").readline())
                try:
                    worker = known[host]
                    # One that was there connects again; another may not have a pod yet.
                    connection = idle[worker].get(timeout=AGAIN if worker in seen else 1)
                except (KeyError, queue.Empty):
                    message = base64.b64encode(b"it has not connected to the launcher\\n").decode()
                    for one in ([2, message], [0, 255]):
                        request.sendall(json.dumps(one).encode() + b"\\n")
                    return
                with connection:
                    connection.sendall(json.dumps(text).encode() + b"\\n")
                    for data in iter(lambda: connection.recv(65536), b""):
                        request.sendall(data)
        except (OSError, ValueError):
            pass  # the agent has ended, or sees the end of its connection

    def accept(server, work):
        while True:
            try:
                connection, address = server.accept()
                arguments = (connection, address[0]) if address else (connection,)
                threading.Thread(target=work, args=arguments, daemon=True).start()
            except (OSError, RuntimeError):
                time.sleep(0.1)  # too many files or threads at the moment

    own = socket.socket(socket.AF_UNIX)
    own.bind(folder + "/relay")
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    pods = socket.create_server(("", port), family=family, backlog=1000,
                                dualstack_ipv6=family == socket.AF_INET6)
    own.listen(1000)
    for one in ((own, answer), (pods, welcome)):
        threading.Thread(target=accept, args=one, daemon=True).start()

if os.environ.get("CIAO_MPI_RELAY"):
    start_relay(int(os.environ["CIAO_MPI_RELAY"].rpartition(":")[2]),
                dict(one.split("=") for one in os.environ["CIAO_MPI_HOSTS"].split()), slots)
"""
"""Part of the launcher's program: writes agent and list of hosts, and passes commands on."""


def variables(
    folder: str, replica: Replica, launcher: Replica, addresses: Mapping[Replica, Address]
) -> dict[str, str]:
    """Return the variables of a replica, beside those of Open MPI.

    Args:
        folder: ``CIAO_MPI``, which every replica has for itself.
        replica: The replica.
        launcher: The replica that runs mpirun.
        addresses: Address of each replica.
    """
    agent = f"{folder}/agent"
    found = {
        "CIAO_MPI_RELAY": str(addresses[launcher]),
        "CIAO_MPI_AGENT": agent,
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    }
    if replica == launcher:
        hosts = [f"{one}={known.host}" for one, known in addresses.items() if one != launcher]
        file = f"{folder}/hosts"
        found |= {"CIAO_MPI_HOSTS": " ".join(hosts), "OMPI_MCA_orte_default_hostfile": file}
        found["PRTE_MCA_prte_default_hostfile"] = file
    return found
