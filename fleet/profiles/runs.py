"""Records of runs on the workstation: one folder for each run, plain files, nothing overwritten;
and readers of record files.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.model.errors import InputError, reason
from fleet.model.files import file_errors
from fleet.model.home import kept, open_private, private_folder, runs_home, write_private
from fleet.model.masking import masked_data
from fleet.model.plain import to_plain

if TYPE_CHECKING:
    from fleet.model.record import Record

_SWITCHES = "switches.jsonl"  # next to the folder of runs


def new_run_id() -> str:
    """Return a run id such as `20261120-224501-3fa9c1`: sorted by time, unique across workstations.

    The last three digits are random; the three digits before them count 1/4096 s.
    """
    second, rest = divmod(time.time_ns(), 10**9)
    part = (rest * 4096 // 10**9) << 12 | secrets.randbits(12)
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(second)) + f"{part:06x}"


def is_run(name: str) -> bool:
    """Return whether a folder of that name holds a run; `profiles.*` is the database of records."""
    return not name.startswith("profiles.")


def record_files(folder: Path) -> list[Path]:
    """Return the record files of one run, ordered by host and repeat."""
    return sorted(folder.glob("*/*/record.json"))


class RunStore:
    """A store of `<root>/<run
    id>/<host>/<repeat>/{record.json,profile.json,stdout.log,stderr.log}`.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or runs_home()

    def folder(
        self, run_id: str, host: str, repeat: int, *, warmup: bool = False, name: str = ""
    ) -> Path:
        """Create `<run>/<host>/<repeat>`, or `warmup-<repeat>`; with `-2` if it already exists."""
        name = name or (f"warmup-{repeat}" if warmup else str(repeat))
        parent = self.root / run_id / host
        if (parent / name).exists():
            name = f"{name}-{len(list(parent.glob(f'{name}-*'))) + 2}"
        folder = parent / name
        with kept(folder):
            private_folder(parent)
            folder.mkdir()
            private_folder(folder)
        return folder

    def save(self, folder: Path, record: Record) -> Record:
        """Write record.json atomically. Return the record as it was written, without secrets.

        Also updates the modification time of the run's folder, which tells the profile store that
        there is a new record.
        """
        path, part = folder / "record.json", folder / "record.json.part"
        own = masked_data(record)
        with kept(path):
            write_private(part, json.dumps(to_plain(own), indent=1, ensure_ascii=False))
            part.replace(path)
            os.utime(folder.parents[1])
        return own

    def note_switch(self, host: str, release: str, run_id: str, by: str) -> None:
        """Note who switched a device to a release, if no journal of a deploy records it.

        A note that cannot be written is dropped, because the device has already been switched.
        """
        line = {"host": host, "release": release, "run": run_id, "by": by}
        path = self.root.with_name(_SWITCHES)
        with suppress(OSError):
            private_folder(path.parent)
            with open_private(path, "ab") as stream:
                stream.write(json.dumps(line).encode() + b"\n")

    def switches(self) -> Iterator[tuple[tuple[str, str], str, str]]:
        """Yield (device, release), run id and user of each note; damaged lines are skipped."""
        with suppress(OSError):
            for line in self.root.with_name(_SWITCHES).read_text("utf-8", "replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    note = json.loads(line)
                    yield (
                        (str(note["host"]), str(note["release"])),
                        str(note["run"]),
                        str(note["by"]),
                    )


_IMPORT = (
    "give a record.json or JSON Lines file of fleet; to read other formats: fleet profiles "
    "import FILE"
)


def read_records(path: Path) -> list[Record]:
    """Return the records of a file, or of every record.json below a folder.

    Raises InputError with the file and line of text that is not a record of a known schema.
    """
    if path.is_dir():
        paths = sorted(path.rglob("record.json"))
        if not paths:
            raise InputError(
                f"the folder {path} contains no record.json", hint="fleet profiles list"
            )
        return [record for file in paths for record in read_records(file)]
    return list(_of_file(path))


def _of_file(path: Path) -> Iterator[Record]:
    from fleet.model.record import Record  # noqa: PLC0415 - few commands read records

    with file_errors(path):
        text = path.read_text("utf-8")
    try:
        whole = json.loads(text)
    except ValueError:
        if not text.strip():
            raise InputError(f"{path} contains no result of a run", hint=_IMPORT) from None
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        for number, line in lines:
            try:
                yield Record.from_dict(json.loads(line))
            except (ValueError, InputError) as error:
                raise InputError(
                    f"line {number} of {path} is not a result of a run: {_message_of(error)}",
                    hint="remove the line, or export the file again",
                ) from error
        return
    for data in whole if isinstance(whole, list) else [whole]:
        try:
            yield Record.from_dict(data)
        except InputError as error:
            raise InputError(
                f"{path} is not a result of a run: {_message_of(error)}", hint=error.hint or _IMPORT
            ) from error


def _message_of(error: Exception) -> str:
    return error.message if isinstance(error, InputError) else reason(error)
