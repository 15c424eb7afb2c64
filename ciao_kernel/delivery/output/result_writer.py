"""Writes the values that ``%output`` names, when the program of a replica has ended.

This file is in replicas as ``ciao_result_writer`` (:mod:`ciao_kernel.delivery.site_folder`).
Standard library, from Python 3.8 on; pathlib would be imported into every process of the program.
"""

from __future__ import annotations

import atexit
import base64
import importlib
import json
import os
import sys

TYPE_CHECKING = False  # not from typing, which each process of the program would import
if TYPE_CHECKING:
    from typing import Any

NAMES, PROGRAM, TARGET = "CIAO_RESULT_NAMES", "CIAO_RESULT_PROGRAM", "CIAO_RESULT_TARGET"
"""Variables: what to write, the words that start the program, and where to write: a folder, or the
file of a container's termination message."""
FILES, MOST, FROM = "CIAO_RESULT_FILES", "CIAO_RESULT_MOST", "CIAO_RESULT_FROM"
"""Variables where the values that a message cannot hold may come back as files: the folder for
them, the most bytes of all, and the only replica that writes some."""
MARK = "ciao-result:"
"""Beginning of a termination message with values; others are the words of a program."""
INDEX = ".index.json"
"""File with the names and types, written last: only then the values are complete. No variable has
such a name."""
_MESSAGE = 4096
"""Bytes of a termination message that the kubelet keeps (Kubernetes, "Customizing the termination
message")."""
_LAYOUT = 500
"""Characters that a message has for the layout of a value."""
_DIGEST = 16
"""Characters of a digest in the message."""
_MODELS = (("keras", "Model"), ("torch", "Module"), ("sklearn", "BaseEstimator"))
"""Classes of models, which are no values but can be saved to a file, with their libraries."""
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


def start(here: str) -> None:
    """Register the writer if this process is the program.

    Args:
        here: Folder of this module.
    """
    if _is_program() and _has_first_rank():
        register(here)


def register(here: str) -> None:
    """Register the writer in the process that is the program.

    Args:
        here: Folder of this module.
    """
    index = os.path.join(os.environ.get(TARGET, ""), INDEX)
    if os.path.isfile(index):
        os.remove(index)  # of an earlier try
    if os.path.isdir(os.environ.get(FILES, "")):
        importlib.import_module("shutil").rmtree(os.environ[FILES], ignore_errors=True)  # the same
    try:
        folder = os.getcwd()  # the program may change it
    except OSError:
        folder = ""
    atexit.register(_write, os.getpid(), here, folder)


def _is_program() -> bool:
    """Return whether Python was started with the program: pip and other scripts are not it."""
    wanted = os.environ.get(PROGRAM, "").split("\n")
    given = getattr(sys, "orig_argv", None) or ["", *sys.argv]  # Python 3.10
    starts = range(1, len(given) - len(wanted) + 1)
    return any(given[at : at + len(wanted)] == wanted for at in starts)


def _has_first_rank() -> bool:
    """Return whether no other process of this replica is the one that counts.

    torchrun and mpirun start several programs. RANK is not asked: it counts the replicas too.
    """
    return os.environ.get("LOCAL_RANK", "0") == "0" and all(
        os.environ.get(name, "0") == "0" for name in _RANKS
    )


def _write(process: int, here: str, folder: str) -> None:
    names = os.environ.get(NAMES, "").split()
    variables = vars(sys.modules["__main__"])
    found = {name: variables[name] for name in names if name in variables}
    target = os.environ.get(TARGET, "")
    # A forked process ends by itself. A launcher of processes has removed the names.
    if os.getpid() != process or not names or not target:
        return
    is_pod = not os.path.isdir(target)
    if not found and not is_pod and os.path.isfile(os.path.join(target, INDEX)):
        return  # a child that runs the same program was it
    sys.path.insert(0, here)
    facts = _facts([name for name in names if name not in found], variables, folder)
    if is_pod and not found and not (facts.get("absent") and _is_free(target)):
        sys.path.remove(here)
        return  # the message stays that of the program, or becomes the end of its log
    formats = importlib.import_module("ciao_value_formats")
    layouts = importlib.import_module("ciao_value_layouts")
    losses = importlib.import_module("ciao_parquet_losses")
    sys.path.remove(here)
    entries: dict[str, dict[str, Any]] = {}
    files: dict[str, bytes] = {}
    for name, value in found.items():
        try:
            suffix, data = formats.to_bytes(name, value, returned=True, sent=is_pod)
            content, levels, unnamed = formats.described(name, value, suffix)
            if suffix == "parquet":
                losses.check_kept(content)
            layout = layouts.layout(suffix, content, levels, unnamed)
        except Exception as error:
            entries[name] = {"type": type(value).__name__, "fault": _reason(error)}
            if _library(value):
                entries[name]["library"] = _library(value)
            continue
        file = f"{name}.{suffix}"
        entries[name] = {"type": formats.base_type(type(value)), "file": file, "size": len(data)}
        if layout:
            entries[name]["layout"] = layout
        part = layouts.lost_part(suffix, value)
        if part is not None:
            kind = type(part)
            # The loader makes a known type of the value itself: a Counter of its subclass.
            known = entries[name]["type"].rpartition(".")[2] if part is value else ""
            entries[name]["lost"] = [kind.__name__[:80], known or layouts.plain_type(kind)]
        files[name] = data
    index = {"names": names, "values": entries}
    if is_pod:
        _shorten(entries, files)
        _to_message(target, index, files, facts)
    else:
        _to_folder(target, {**index, **facts}, files)


def _facts(absent: list[str], variables: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return what the index has of missing variables; empty if there are none."""
    if not absent:
        return {}
    try:
        known = importlib.import_module("ciao_absent_values")
        raised = known.raised()
        if raised:  # a variable of a similar name, or a path, does not matter then
            return {"absent": {}, "raised": raised}
        return {"absent": known.facts(absent, variables, folder)}
    except BaseException:  # what only explains must not cost a value
        return {"absent": {}}


def _is_free(message: str) -> bool:
    """Return whether a message can be written in which the program has none of its own."""
    if os.path.isfile(message):
        return os.path.getsize(message) == 0
    return os.path.isdir(os.path.dirname(message))


def _library(value: object) -> str:
    """Return whose model a value is, "" if it is another value: a program may derive its own."""
    kinds = {
        (str(getattr(kind, "__module__", "")).split(".")[0], kind.__name__)
        for kind in type(value).__mro__
    }
    return next((library for library, name in _MODELS if (library, name) in kinds), "")


def _reason(error: Exception) -> str:
    part = getattr(error, "value", None)  # of a NotStorable
    if part is not None:
        return f"no file format stores a {type(part).__name__}"
    return str(error).strip().split("\n")[0][:200] or type(error).__name__


def _shorten(entries: dict[str, dict[str, Any]], files: dict[str, bytes]) -> None:
    """Leave out layouts that would take the room of the values in a message.

    A value without the places of its tuples has lists; a table could not be read.
    """
    for entry in entries.values():
        if len(json.dumps(entry.get("layout"))) > _LAYOUT:
            _drop_layout(entry, files)


def _drop_layout(entry: dict[str, Any], files: dict[str, bytes]) -> None:
    del entry["layout"]
    if entry["file"].endswith(".csv"):
        del files[entry.pop("file").rpartition(".")[0]]
        entry["fault"] = "without pyarrow, tables with so many columns do not come back"


def _to_folder(target: str, index: dict[str, Any], files: dict[str, bytes]) -> None:
    for name, data in files.items():
        entry = index["values"][name]
        place = os.path.join(target, entry["file"])
        try:
            with open(place, "wb") as file:
                file.write(data)
        except OSError as error:  # a full disk: the others may have room
            entry["errno"] = error.errno
            del entry["file"]  # what is there is no whole value, or one of an earlier try
            try:  # noqa: SIM105 - contextlib would be imported into every process of the program
                os.remove(place)
            except OSError:
                pass
    part = os.path.join(target, INDEX + ".part")
    with open(part, "w", encoding="utf-8") as text:
        json.dump(index, text)
    os.replace(part, os.path.join(target, INDEX))


def _to_message(
    target: str, index: dict[str, Any], files: dict[str, bytes], facts: dict[str, Any]
) -> None:
    """Write what fits, the small values first; a value without data was too large.

    Those become files where they may come back as such: the message has the beginning of a digest.
    What is known of missing variables gets the room that is left.
    """
    folder, replica = os.environ.get(FILES, ""), os.environ.get("CIAO_REPLICA", "")
    digests: dict[str, str] = {}
    if folder and os.environ.get(FROM, replica) == replica:
        sha256 = importlib.import_module("hashlib").sha256
        digests = {name: sha256(data).hexdigest()[:_DIGEST] for name, data in files.items()}
    while True:
        entries = _fitting(index, files, digests) or _fitting(index, files, {})
        described = [name for name, one in index["values"].items() if "layout" in one]
        is_full = entries is None or any(
            name in digests and not {"data", "digest"} & set(entries[name]) for name in described
        )
        if not described or not is_full:
            break
        # Each layout has room, but not all of them.
        name = max(described, key=lambda name: len(json.dumps(index["values"][name]["layout"])))
        _drop_layout(index["values"][name], files)
        digests = {name: one for name, one in digests.items() if name in files}
    if entries is None:
        return  # the names alone are too many
    _to_files(folder, entries, files)
    with open(target, "wb") as file:
        told = _message({**index, "values": entries, **facts})
        alone = _message({**index, "values": entries})
        file.write(told if len(told) <= _MESSAGE else alone)


def _fitting(
    index: dict[str, Any], files: dict[str, bytes], digests: dict[str, str]
) -> dict[str, dict[str, Any]] | None:
    """Return the entries of a message with as many values as it can hold; None if it is too large.

    A digest may be longer than a value, so more values may take less room.
    """
    entries = dict(index["values"])
    for name, digest in digests.items():
        entries[name] = {**entries[name], "digest": digest}
    fits = dict(entries) if len(_message({**index, "values": entries})) <= _MESSAGE else None
    for name in sorted(files, key=lambda name: len(files[name])):
        if len(files[name]) > _MESSAGE:
            break
        data = base64.b64encode(files[name]).decode()
        entries[name] = {**index["values"][name], "data": data}
        if len(_message({**index, "values": entries})) <= _MESSAGE:
            fits = dict(entries)
    return fits


def _to_files(folder: str, entries: dict[str, dict[str, Any]], files: dict[str, bytes]) -> None:
    """Write values as files, the small ones first; an entry says which do not come, and why.

    Only entries with a digest have a file.
    """
    most, total = int(os.environ.get(MOST, "0")), 0
    for name in sorted(files, key=lambda name: len(files[name])):
        data = files[name]
        if "digest" not in entries[name]:
            continue
        total += len(data)
        if total > most:
            entries[name]["most"] = most
            del entries[name]["digest"]
            continue
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, entries[name]["file"]), "wb") as file:
                file.write(data)
        except OSError as error:
            entries[name]["errno"] = error.errno
            del entries[name]["digest"]


def _message(index: dict[str, Any]) -> bytes:
    return (MARK + json.dumps(index, separators=(",", ":"))).encode()
