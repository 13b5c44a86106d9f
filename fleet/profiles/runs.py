"""Records of runs on the workstation: one folder a run, plain files, nothing overwritten."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.model.home import kept, open_private, private_folder, runs_home, write_private
from fleet.model.masking import masked_data
from fleet.model.plain import to_plain

if TYPE_CHECKING:
    from fleet.model.record import Record

_SWITCHES = "switches.jsonl"  # beside the folder of runs


def new_run_id() -> str:
    """`20261120-224501-3fa9c1`: sorts by time, unique across workstations.

    The last three digits are random, the three before them are 1/4096 s.
    """
    second, rest = divmod(time.time_ns(), 10**9)
    part = (rest * 4096 // 10**9) << 12 | secrets.randbits(12)
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(second)) + f"{part:06x}"


def is_run(name: str) -> bool:
    """Whether a folder of that name holds a run: the database of records lies beside them."""
    return not name.startswith("profiles.")


def record_files(folder: Path) -> list[Path]:
    """The records of one run, in the order of hosts and repeats."""
    return sorted(folder.glob("*/*/record.json"))


class RunStore:
    """`<root>/<run id>/<host>/<repeat>/{record.json,profile.json,stdout.log,stderr.log}`."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or runs_home()

    def folder(
        self, run_id: str, host: str, repeat: int, *, warmup: bool = False, name: str = ""
    ) -> Path:
        """A new folder for one run; `0-2` where a process that ended before left `0`."""
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
        """Write record.json, whole or not at all. The record as it was written: without secrets.

        The time of the run's folder is set anew: so the store of profiles sees that there is more.
        """
        path, part = folder / "record.json", folder / "record.json.part"
        own = masked_data(record)
        with kept(path):
            write_private(part, json.dumps(to_plain(own), indent=1, ensure_ascii=False))
            part.replace(path)
            os.utime(folder.parents[1])
        return own

    def note_switch(self, host: str, release: str, run_id: str, by: str) -> None:
        """Write down who switched a device to a release, if no journal of a deploy says so.

        A note that cannot be written is left out: what was done to the device is done.
        """
        line = {"host": host, "release": release, "run": run_id, "by": by}
        path = self.root.with_name(_SWITCHES)
        with suppress(OSError):
            private_folder(path.parent)
            with open_private(path, "ab") as stream:
                stream.write(json.dumps(line).encode() + b"\n")

    def switches(self) -> Iterator[tuple[tuple[str, str], str, str]]:
        """Yield (device, release), run id and user of each note; a damaged line is left out."""
        with suppress(OSError):
            for line in self.root.with_name(_SWITCHES).read_text("utf-8", "replace").splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    note = json.loads(line)
                    yield (
                        (str(note["host"]), str(note["release"])),
                        str(note["run"]),
                        str(note["by"]),
                    )
