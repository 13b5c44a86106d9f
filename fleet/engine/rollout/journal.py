"""The journal of a run: JSON lines, each synced before the step that it announces begins.

The file is `<runs>/<run id>/journal.jsonl`. A killed process leaves at most one torn last line,
which is ignored. The journal contains names, releases and outcomes, never a secret: hosts are
named, not described.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from fleet.engine.lease.claims import owner
from fleet.engine.rollout.claim import NAME, adopt, claim, forget, lock
from fleet.engine.rollout.lines import SCHEMA, HereLine, JournalLine, RunHeader, read_line
from fleet.engine.rollout.state import RunState
from fleet.model.deadline import utc_text
from fleet.model.errors import InputError, WorkstationError, reason
from fleet.model.files import file_errors
from fleet.model.masking import masked
from fleet.model.plain import to_plain

_ANEW = "fleet deploy (starts a new run; finished devices are skipped)"


class Journal:
    """The open journal of one run, and the state from its lines.

    Only one process can write to it. The kernel releases the lock when the process ends for any
    reason. Without a path nothing is stored, but the state is still correct.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.state = RunState()
        self._lock = threading.Lock()
        self._file: int | None = None
        self._size = 0

    @classmethod
    def claim(cls, path: Path | None) -> Journal:
        """Return the empty journal of a run in preparation, which remains if the process dies.

        Raises WorkstationError if it cannot be written.
        """
        journal = cls(path)
        if path is not None:
            try:
                early = adopt(path)
                journal._file = claim(path) if early is None else early
            except OSError as error:
                raise _unwritable(path, error) from error
        return journal

    @classmethod
    def begin(cls, path: Path | None, header: RunHeader) -> Journal:
        """Begin a new run. Raises WorkstationError if its journal cannot be written."""
        journal = cls.claim(path)
        journal.write(header)
        return journal

    def drop(self) -> None:
        """Delete the journal of a run that was refused before it began."""
        self.close()
        if self.path is not None:
            forget(self.path)

    @classmethod
    def reopen(cls, path: Path) -> Journal:
        """Open and lock the journal of a run to continue it, and cut off a torn last line.

        Raises InputError if the file is missing, damaged or empty, or if a process has it open.
        """
        journal = cls(path)
        try:
            with file_errors(path):
                journal._file = os.open(path, os.O_RDWR)
                lock(journal._file, path)
                journal._size = journal._replay(path.read_bytes())
                os.ftruncate(journal._file, journal._size)
        except InputError:
            journal.close()
            raise
        return journal

    @classmethod
    def read(cls, path: Path) -> RunState:
        """Return the state of a run without locking it. Raises InputError like `reopen`."""
        journal = cls(path)
        with file_errors(path):
            journal._replay(path.read_bytes())
        return journal.state

    @classmethod
    def state_of(cls, run: Path) -> RunState | None:
        """Return the state of a run by its folder, None without a readable journal."""
        try:
            return cls.read(run / NAME)
        except InputError:  # damaged or not begun: `fleet deploy --runs` reports it
            return None

    def write(self, line: JournalLine) -> None:
        """Append one line and sync it. Raises WorkstationError if the disk refuses."""
        sets: dict[str, object] = {"at": utc_text()}
        if isinstance(line, HereLine):
            sets |= {"pid": os.getpid(), "workstation": socket.gethostname(), "owner": owner()}
        text = getattr(line, "text", None)
        if text is not None:
            sets["text"] = masked(text)  # may be a device's text
        line = structs.replace(line, **sets)
        data = json.dumps(to_plain(line), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        with self._lock:
            self.state.take(line)
            if self._file is not None:
                self._append(data)
        if self._file is not None:
            try:  # outside of the lock: the kernel merges concurrent syncs
                os.fsync(self._file)
            except OSError as error:
                raise _unwritable(self.path, error) from error

    def _append(self, data: bytes) -> None:
        file, at = self._file, self._size
        if file is None:
            return
        try:
            while data:
                written = os.pwrite(file, data, self._size)
                self._size += written
                data = data[written:]
        except OSError as error:
            self._size = at
            os.ftruncate(file, at)  # half a line would damage the next one
            raise _unwritable(self.path, error) from error

    def _replay(self, data: bytes) -> int:
        """Apply all lines to the state, and return the bytes without a torn last line.

        Raises InputError for another damaged line or an empty journal.
        """
        end = 0
        for number, raw in enumerate(_whole_lines(data), 1):
            try:
                self._take(raw)
            except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
                if end + len(raw) == len(data):
                    break  # the last line is torn: its end was written before its middle
                why = (
                    str(error)
                    if isinstance(error, InputError)
                    else ("the line is not valid JSON of fleet")
                )
                raise InputError(
                    f"the journal {self.path}:{number} is damaged: {why}", hint=_ANEW
                ) from error
            end += len(raw)
        if self.state.began is None:
            raise InputError(
                f"the journal {self.path} is empty: the run ended before it changed a device",
                hint=_ANEW,
            )
        return end

    def _take(self, raw: bytes) -> None:
        try:
            data = json.loads(raw)
        except RecursionError as error:
            raise ValueError("nested too deep") from error
        if data["line"] == "run" and data["schema"] != SCHEMA:
            raise InputError(
                f"fleet {data['fleet']} wrote format {data['schema']}, this fleet reads {SCHEMA}",
                hint=_ANEW,
            )
        if (data["line"] == "run") == (self.state.began is not None):
            raise InputError("only its first line must be of the kind `run`", hint=_ANEW)
        line = read_line(data)
        if line is not None:
            self.state.take(line)

    def close(self) -> None:
        """Close the journal. Workers must have ended, because their lines would be lost."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.close()


def busy(path: Path) -> bool:
    """Return True if a process works on the run."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def _whole_lines(data: bytes) -> Iterator[bytes]:
    *whole, _ = data.split(b"\n")
    for line in whole:
        yield line + b"\n"


def _unwritable(path: Path | None, error: OSError) -> WorkstationError:
    return WorkstationError(
        f"cannot write the journal {path}: {reason(error)}",
        hint="check this path and the free disk space, or set FLEET_HOME to another folder; "
        "then: fleet deploy",
    )
