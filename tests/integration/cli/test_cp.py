"""`ciao cp` from a replica of this machine and to it, by the real command."""

from __future__ import annotations

import os
import stat

from tests.integration.cli.command import User


def test_a_copy_has_the_mode_that_cp_would_give_it(ciao: User) -> None:
    ciao.detach("far")
    for name, mode in (("run.sh", 0o755), ("log.csv", 0o666)):
        ciao.file(name, name).chmod(mode)
    ciao.file("kept.csv", "old").chmod(0o604)
    (ciao.folder / "latest").symlink_to("kept.csv")
    script = (
        "umask 027\n"
        "set -e\n"
        "ciao cp run.sh far/worker-0:there/\n"
        "ciao cp log.csv far/worker-0:there/\n"
        "ciao cp far/worker-0:there back\n"
        "ciao cp far/worker-0:there/log.csv latest\n"
    )
    done = ciao.shell(script)
    assert (done.code, done.err) == (0, "")
    modes = {
        name: oct(stat.S_IMODE((ciao.folder / name).lstat().st_mode))
        for name in ("back/run.sh", "back/log.csv", "kept.csv")
    }
    assert modes == {"back/run.sh": "0o750", "back/log.csv": "0o640", "kept.csv": "0o604"}
    assert (ciao.folder / "latest").is_symlink()
    assert (ciao.folder / "kept.csv").read_text() == "log.csv"
    os.mkfifo(ciao.folder / "pipe")
    refused = ciao("cp", "far/worker-0:there/log.csv", "pipe")
    assert refused.code == 1
    assert "pipe cannot be written: it is a pipe, not a file." in refused.err
