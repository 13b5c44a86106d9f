"""The releases on devices, and what this workstation knows about them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fleet.device.shell import device_script, framed, odd_answer
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.engine.states import gathered
from fleet.model.deadline import utc_text
from fleet.model.errors import FleetError
from fleet.model.events import Listener, Warned
from fleet.model.inventory import Host
from fleet.model.metrics import Rate, rate_of
from fleet.ops.fsck import passed_in
from fleet.ops.lease import Holders, holders_in, who_command
from fleet.profiles.runs import RunStore

MOST_JOURNALS = 200  # the newest ones, which are read for the names of deployers
RECORDS = 5  # the newest records of a release on a device; a run has 5 by default
Place = tuple[str, str]  # a device and the id of a release
_SECONDS = re.compile("[0-9]{1,11}")


@dataclass
class Deployed:
    """A deployed name on a device.

    `state` is installed or damaged, and `broken` counts dead links. `history` begins with the
    oldest release. `origin` is the part of the manifest about runtime and bundle. `since` is the
    time of the switch, in UTC by the clock of the device; None if the device does not state it.
    `by` is the user who deployed it and `rate` the rate of its last run, if this workstation knows
    them.
    """

    name: str
    id: str
    state: str
    broken: int
    history: list[str] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)
    since: str | None = None
    by: str | None = None
    rate: Rate | None = None
    PLAIN: ClassVar[str] = "* previous"

    @property
    def previous(self) -> str | None:
        """The target of a rollback: the newest release in the history that is not current."""
        return next((past for past in reversed(self.history) if past != self.id), None)


def parse_status(text: str, host: str) -> list[Deployed]:
    """Parse the answer of status.sh. Raises DeviceError if it was cut off or makes no sense."""
    releases: dict[str, Deployed] = {}
    for words in framed(text, "fleet-status 1", host):
        kind, name, *rest = (*words, "")
        if kind == "name":
            try:
                releases[name] = Deployed(name, rest[0], rest[1], int(rest[2]))
            except (IndexError, ValueError) as error:
                raise odd_answer(" ".join(words), host) from error
        elif kind == "made" and name in releases and _SECONDS.fullmatch(rest[0]):
            releases[name].since = utc_text(int(rest[0]))
        elif kind == "history" and name in releases:
            releases[name].history.append(rest[0])
        elif kind == "manifest" and name in releases:
            try:
                releases[name].origin = json.loads(" ".join(rest))["origin"]
            except (ValueError, KeyError, TypeError):
                releases[name].state = "damaged"
    return list(releases.values())


def deployed(session: Session, base: str) -> tuple[list[Deployed], Holders, dict[str, Any] | None]:
    """Return the releases under a base folder, the holders of the board, and the last check by
    hash.

    The last is None if no check has passed. Takes one round trip.
    """
    host = session.host.name
    text = session.ask(who_command(device_script("status", base)), "status").text
    passes = [line.removeprefix("fsck ") for line in text.splitlines() if line.startswith("fsck ")]
    passed = passed_in(passes[-1]) if passes else None
    return parse_status(text, host), holders_in(text, host), passed


@dataclass(frozen=True)
class DeviceStatus:
    """The status that `fleet status` shows of one device.

    `fsck` has the count and the time of the last check of all files that passed, None if there was
    none.
    """

    deployed: tuple[Deployed, ...]
    base_dir: str
    disk_free_bytes: int | None
    emulated: bool
    fsck: dict[str, Any] | None
    holders: Holders
    PLAIN: ClassVar[str] = "* -holders **holders"


def status(
    hosts: Sequence[Host],
    listener: Listener,
    *,
    parallel: int,
    accept_new: bool = False,
    runs: Path | None = None,
) -> list[DeviceResult[DeviceStatus]]:
    """Return the releases on each host, who deployed them, and how fast they ran. Only reads.

    `runs` is the folder of runs, by default that of this user. Its journals and records tell who
    deployed a release and how fast it was. An unreadable record causes a warning. `accept_new` pins
    new host keys.
    """

    def work(session: Session, result: DeviceResult[DeviceStatus]) -> None:
        facts = gathered(session)
        releases, holders, passed = deployed(session, facts.base_dir)
        result.outcome = "ok"
        checked = [f"fsck passed {passed['passed']}"] if passed else []
        result.text = "; ".join([*holders.notes, *checked])
        result.value = DeviceStatus(
            deployed=tuple(releases),
            base_dir=facts.base_dir,
            disk_free_bytes=facts.disk.available_bytes,
            emulated=facts.emulated,
            fsck=passed,
            holders=holders,
        )

    options = PoolOptions[DeviceStatus](parallel=parallel, accept_new=accept_new)
    results = on_every_device(hosts, work, listener, options)
    add_history(results, listener, runs)
    return results


def add_history(
    results: Sequence[DeviceResult[DeviceStatus]], listener: Listener, runs: Path | None = None
) -> None:
    """Add to each release who deployed it and its last rate, as this workstation knows them."""
    every = [(r.host.name, item) for r in results if r.value for item in r.value.deployed]
    store = RunStore(runs)
    if not every:
        return
    needed: dict[Place, int] = {}
    for host, item in every:
        place = host, item.id
        needed[place] = max(1, item.history.count(item.id), needed.get(place, 0))
    known = switches(store, needed)
    rates: dict[tuple[str, str, str], Rate] = {}
    try:
        if store.root.is_dir():
            rates = _rates(runs, {(host, item.name, item.id) for host, item in every})
    except FleetError as error:
        listener(Warned("", f"fleet cannot read the rates of the last runs: {error}"))
    for host, item in every:
        # A switch by another workstation may be newer than the switches that are known here.
        mine = known.get((host, item.id), [])
        item.by = mine[0] if len(mine) >= max(1, item.history.count(item.id)) else None
        item.rate = rates.get((host, item.name, item.id))


def switches(runs: RunStore, needed: Mapping[Place, int]) -> dict[Place, list[str]]:
    """Return who switched a device to a release from this workstation, the last switch first.

    `needed` has the places to look for, each with the number of switches that is enough. The
    sources are the journals of deploys and the lines of `RunStore.note_switch`.
    """
    from fleet.engine.rollout.claim import NAME  # noqa: PLC0415 - of deploys only
    from fleet.engine.rollout.journal import Journal  # noqa: PLC0415

    records: dict[Place, list[tuple[str, str]]] = {}
    for place, run_id, by in runs.switches():
        if place in needed:
            records.setdefault(place, []).append((run_id, by))
    for path in sorted(runs.root.glob(f"*/{NAME}"), reverse=True)[:MOST_JOURNALS]:
        if all(len(records.get(place, ())) >= count for place, count in needed.items()):
            break
        state = Journal.state_of(path.parent)
        if state is None:
            continue
        by = state.header.owner or state.header.workstation
        for device in state.devices.values():
            place = device.name, device.release
            if device.switched and place in needed:
                records.setdefault(place, []).append((path.parent.name, by))
    return {
        place: [by for _, by in sorted(known, reverse=True)] for place, known in records.items()
    }


def _rates(
    runs: Path | None, places: Collection[tuple[str, str, str]]
) -> dict[tuple[str, str, str], Rate]:
    """Return the median rate of the newest run that counts, by device, name and release."""
    from fleet.profiles.store import ProfileStore  # noqa: PLC0415 - sqlite

    rates = {}
    with ProfileStore(runs) as store:
        store.look()
        for place, records in store.newest(places, RECORDS).items():
            newest = [r for r in records if r["run_id"] == records[0]["run_id"]]
            if rate := rate_of([{**record, "counts": True} for record in newest]):
                rates[place] = rate
    return rates
