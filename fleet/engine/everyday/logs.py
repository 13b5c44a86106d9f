"""The logs of a device: journal, kernel, logcat, and the log of a service."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fleet.device.shell import MARK, device_script, failed
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.model.errors import DeviceError
from fleet.model.inventory import Host
from fleet.model.masking import masked
from fleet.ops.lease import Holders, holders_in, who_command

KINDS = ("journal", "dmesg", "logcat", "service")
_SINCE_BOOT = {  # seconds since the boot: dmesg, and logcat -v uptime
    "dmesg": re.compile(r"(?:<\d+>)?\[ *(\d+\.\d+)\]"),
    "logcat": re.compile(r" *(\d+\.\d+) "),
}


@dataclass(frozen=True)
class LogLines:
    """The lines of a device's logs, each with the kind of its log.

    `unread` has the reason of the device for each log that it could not read.
    """

    lines: Sequence[tuple[str, str]]
    unread: Sequence[tuple[str, str]]
    holders: Holders
    PLAIN: ClassVar[str] = "lines unread notes=holders.notes"


@dataclass(frozen=True)
class LogQuery:
    """A query of logs: at most `lines` of each kind, from the last `since` seconds (None: all).

    Without kinds, all kinds that such a device has are read.
    """

    kinds: tuple[str, ...]
    lines: int
    since: float | None = None

    def work(self, session: Session, result: DeviceResult[LogLines]) -> None:
        """Read the logs of one device.

        Raises DeviceError if no log can be read, or if one cannot that was named.
        """
        since = str(math.ceil(self.since)) if self.since is not None else ""
        words = (session.host.base_dir, " ".join(self.kinds), str(self.lines), since)
        done = session.run(who_command(device_script("logs", *words)), "logs")
        head, _, body = done.stdout.partition(MARK)
        if not body.endswith(b"end\n"):
            raise failed(done, "logs", session.host.name)
        rows = list(_rows(body.decode("utf-8", "replace"), self.since))
        lines = [(kind, masked(text)) for kind, mark, text in rows if mark == "|"]
        unread = [(kind, masked(text)) for kind, mark, text in rows if mark == "!"]
        holders = holders_in(head.decode("utf-8", "replace"), session.host.name)
        result.value = LogLines(lines, unread, holders)
        read, lacking = ({kind for kind, _ in log} for log in (lines, unread))
        lost = sorted(lacking - read)
        if lost and (self.kinds or not read):
            raise DeviceError(
                f"fleet cannot read these logs of the device: {', '.join(lost)}",
                step="logs",
                hint="the reason is printed above; add the user to the groups adm and "
                "systemd-journal (dmesg may need root); fleet doctor (shows the groups of "
                "the user)",
            )
        result.outcome, result.text = "ok", f"{len(lines)} lines"


def _rows(text: str, since: float | None) -> Iterator[tuple[str, str, str]]:
    """Yield kind, mark and text of each line.

    Lines with times since the boot are filtered by age.
    """
    up, old, young = None, set[str](), set[str]()
    for line in text.split("\n"):
        kind, _, rest = line.partition(" ")
        mark, _, message = rest.partition(" ")
        if kind == "uptime":
            up = float(rest) if re.fullmatch(r"\d+(\.\d+)?", rest) else None
        elif kind in KINDS and mark in {"|", "!"}:
            time_match = _SINCE_BOOT[kind].match(message) if kind in _SINCE_BOOT else None
            if time_match and since is not None and up is not None:
                (old.add if float(time_match[1]) < up - since else old.discard)(kind)
            if mark == "!" or kind not in old:
                young.add(kind)
                yield kind, mark, message
    for kind in sorted(old - young):
        yield kind, "|", "-- No entries --"  # the words of journalctl


def read_logs(
    query: LogQuery, hosts: Sequence[Host], *, parallel: int, accept_new: bool = False
) -> list[DeviceResult[LogLines]]:
    """Read the log lines that match `query` on every host. `accept_new` pins new host keys."""
    options = PoolOptions[LogLines](parallel=parallel, accept_new=accept_new)
    return on_every_device(hosts, query.work, lambda _: None, options)
