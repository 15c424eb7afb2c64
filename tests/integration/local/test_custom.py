"""Jobs of programs in any language on this machine."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import JobFailed, UsageError
from tests.helpers.jobs import Place

SHELL = """\
% no directive, since it is below the header
!neither is this
layer {
"""


def test_each_replica_runs_the_command_with_the_cells_file(jobs: Place) -> None:
    script = 'cat "$1"; echo "$CIAO_ROLE-$CIAO_INDEX $RANK/$WORLD_SIZE $LOCAL_RANK"; '
    script += 'test "$1" = "$CIAO_CELL" && test -n "$MASTER_PORT" && echo "$CIAO_HOSTS"'
    jobs.write("helper.py", "x = 1")
    header = f"%framework=custom\n%worker=2\n%command=sh -c '{script}' sh {{cell}}\n"
    ended = jobs.run(header + "import helper\n" + SHELL)
    assert ended.error is None, ended.error
    for index in range(2):
        said = ended.log(f"worker-{index}").decode()
        assert said.startswith("\n\n\nimport helper\n" + SHELL)
        *_, rank, hosts = said.splitlines()
        assert rank == f"worker-{index} {index}/2 0"
        assert len(hosts.split(",")) == 2
    assert "helper.py" not in ended.display.notices


def test_a_cell_starts_a_program_of_files_and_no_shell_reads_the_words(jobs: Place) -> None:
    jobs.write("tools/show", '#!/bin/sh\necho "$@"\n').chmod(0o755)
    header = "%framework=custom\n%files=tools/show\n%command=./tools/show $HOME '* ?' ;%args=a;b\n"
    ended = jobs.run(header + "x\n")
    assert ended.error is None, ended.error
    assert ended.log("worker-0") == b"$HOME * ? a;b\n"


def test_an_exit_code_fails_the_job(jobs: Place) -> None:
    ended = jobs.run("%framework=custom\n%command=sh {cell}\nexit 3\n")
    assert isinstance(ended.error, JobFailed)
    assert "exit code 3" in ended.error.message


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("no-such-program-42", "PATH does not have it"),
        ("/no/such/program", "on this machine"),
        ("./not-delivered", "in the job's folder"),
        ("./plain", "in the job's folder"),
    ],
)
def test_a_missing_program_is_named_before_anything_is_created(
    jobs: Place, program: str, message: str
) -> None:
    jobs.write("plain", "not executable")
    ended = jobs.run(f"%framework=custom\n%files=plain\n%command={program} {{cell}}\nx\n")
    assert isinstance(ended.error, UsageError)
    assert program in ended.error.message
    assert message in ended.error.message
    assert (ended.error.line, ended.error.column) == (3, 9)  # type: ignore[attr-defined]
    assert jobs.leftovers() == []
    assert not jobs.alive()


def test_the_path_of_the_replicas_decides(jobs: Place) -> None:
    folder = jobs.write("bin/mine", "#!/bin/sh\necho found\n")
    folder.chmod(0o755)
    ended = jobs.run(f"%framework=custom\n%envvar=PATH={folder.parent}\n%command=mine\nx\n")
    assert ended.error is None, ended.error
    assert ended.log("worker-0") == b"found\n"
