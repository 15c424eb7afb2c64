"""Finds files of a replica, and sends or receives them over standard input and output.

The parts of this package are also the program that runs in a pod, as one text
(:mod:`ciao_kernel.delivery.replica_program`); :mod:`ciao_kernel.delivery.transfers` starts it. So
they take the standard library alone, from Python 3.8 on, and need neither a shell nor tar.
"""

from ciao_kernel.delivery.replica_files.finding import (
    EVENT_FILES,
    LONGEST_PATH,
    OWN,
    VALUES,
    Found,
    find,
    fitting,
    pattern,
    reason,
    survey,
)
from ciao_kernel.delivery.replica_files.log_writer import (
    LOG_END,
    LOG_LINE,
    LOG_LONGEST,
    LOG_MOST,
    LogWriter,
    write_to_log,
)
from ciao_kernel.delivery.replica_files.marks import (
    CONTACT,
    COPIED,
    COPIES,
    FETCHING,
    HELD,
    NOT_COPIED,
    POD_MARK,
    POD_UID,
    REPLICA,
    STOPPED,
    TAKEN,
    TOO_LARGE,
    is_awaited,
    is_read,
    mark,
    read_mark,
)
from ciao_kernel.delivery.replica_files.messages import (
    BEAT,
    CHANGED,
    DATA,
    DONE,
    END,
    FAULT,
    FILE,
    HEADER,
    LIST,
    POD,
    RELEASE,
)
from ciao_kernel.delivery.replica_files.on_claim import (
    BUSY,
    remove_parts,
)
from ciao_kernel.delivery.replica_files.opening import open_inside
from ciao_kernel.delivery.replica_files.placing import (
    create_part,
    followed,
    part_beside,
    put,
)
from ciao_kernel.delivery.replica_files.requests import (
    main,
)
from ciao_kernel.delivery.replica_files.sender import (
    write_stream,
)

__all__ = [
    "BEAT",
    "BUSY",
    "CHANGED",
    "CONTACT",
    "COPIED",
    "COPIES",
    "DATA",
    "DONE",
    "END",
    "EVENT_FILES",
    "FAULT",
    "FETCHING",
    "FILE",
    "HEADER",
    "HELD",
    "LIST",
    "LOG_END",
    "LOG_LINE",
    "LOG_LONGEST",
    "LOG_MOST",
    "LONGEST_PATH",
    "NOT_COPIED",
    "OWN",
    "POD",
    "POD_MARK",
    "POD_UID",
    "RELEASE",
    "REPLICA",
    "STOPPED",
    "TAKEN",
    "TOO_LARGE",
    "VALUES",
    "Found",
    "LogWriter",
    "create_part",
    "find",
    "fitting",
    "followed",
    "is_awaited",
    "is_read",
    "main",
    "mark",
    "open_inside",
    "part_beside",
    "pattern",
    "put",
    "read_mark",
    "reason",
    "remove_parts",
    "survey",
    "write_stream",
    "write_to_log",
]
