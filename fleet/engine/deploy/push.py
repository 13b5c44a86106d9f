"""A push of plain files as a release: like a deploy, but without runtime, runner and NPU session.

The base folder and the tools of a device are cached for one identity (host key or serial number). A
push without changes therefore asks only for the state of the files, which is never cached. A
Windows PC is asked for all of its facts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from threading import Thread

from msgspec import Struct

from fleet.content.sources import SourceFiles
from fleet.engine.deploy.switch import apply_plan
from fleet.engine.lease.claims import owner
from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.engine.states import Look, Survey, facts_of
from fleet.engine.transfer.context import TransferContext, TransferOptions
from fleet.engine.transfer.speculative import check_room, send_speculatively
from fleet.model.errors import InputError
from fleet.model.events import Listener
from fleet.model.facts import Facts, Tools
from fleet.model.home import fleet_home, write_whole
from fleet.model.inventory import Host
from fleet.model.manifest import KEEP, Manifest, check_name
from fleet.model.plain import read_plain, to_plain
from fleet.model.plan import DevicePlan, SendBlobs
from fleet.ops.backend import backend_for
from fleet.ops.upload import Step
from fleet.profiles.runs import RunStore, new_run_id
from fleet.transport import Transport
from fleet.transport.base import WORTH_BYTES


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """The options of a push, as in fleet.engine.options.DeployOptions."""

    verify: bool = False
    accept_new: bool = False
    parallel: int = 16
    keep: int = KEEP
    transfer: TransferOptions | None = None


class Push:
    """A set of files that becomes `<base>/current/<name>/` on every host."""

    def __init__(
        self,
        name: str,
        sources: Sequence[Path] | SourceFiles,
        hosts: Sequence[Host],
        listener: Listener,
        options: PushOptions | None = None,
    ) -> None:
        """Start to hash the files. `sources` are paths, or SourceFiles that were started already.

        Raises InputError for files that cannot be sent.
        """
        self.options = options or PushOptions()
        self.hosts = tuple(hosts)
        check_name(name)
        self.name = name
        self.sources = sources if isinstance(sources, SourceFiles) else SourceFiles(sources).start()
        self.run_id = new_run_id()
        self.transfer = TransferContext(self.options.transfer or TransferOptions())
        if self.transfer.options.carrier != "paramiko":
            self.transfer.bulk = self.sources.late_bytes() >= WORTH_BYTES
        self._listener = listener

    @cached_property
    def manifest(self) -> Manifest:
        """The files of the release; waits until all are hashed. Raises InputError."""
        return Manifest(self.name, self.sources.files(), origin={"kind": "files"})

    def push(
        self,
        meanwhile: Callable[[], object] | None = None,
        begun: Mapping[str, Transport] | None = None,
    ) -> list[DeviceResult[None]]:
        """Send the files; a device that has them all is left alone.

        `meanwhile` and `begun` are those of PoolOptions.
        """
        Thread(target=self._name, daemon=True, name="fleet-name").start()
        options = PoolOptions[None](
            parallel=self.options.parallel,
            accept_new=self.options.accept_new,
            transfer=self.transfer,
            meanwhile=meanwhile,
            begun=begun or {},
        )
        return on_every_device(self.hosts, self._push, self._listener, options)

    def _name(self) -> None:
        """Compute slow values while the devices are connecting.

        They are the compression ratio of large files, and the id of a release with thousands of
        files.
        """
        for late in self.sources.late() if self.transfer.options.compress == "auto" else ():
            self.transfer.sampler.sample(late.file)
        with suppress(InputError):
            _ = self.manifest.id

    def _push(self, session: Session, result: DeviceResult[None]) -> None:
        """Push to one device, in one round trip if it is known and has everything."""
        late = self.sources.late()
        known = None if self.options.verify or late else remembered(session)
        keep = self.options.keep
        look = Survey(session, known, self.manifest, keep).first() if known else None
        if known and look and look.state.sealed and not look.actions:
            self._done(result, self._plan(session, known, look))
            return
        facts = facts_of(session, short=True)
        with Lease(session, f"push {self.name}", self.run_id):
            tail = self._tail(session, facts) if len(late) == len(self.sources) else ()
            facts, there, done = send_speculatively(session, facts, self.name, late, tail)
            if known is None or known.base_dir != facts.base_dir:
                look = None
            survey = Survey(session, facts, self.manifest, keep)
            if there:
                look = survey.look(there=there)
            else:
                look = self._look(survey, look, expected=known is not None or bool(late))
            plan = result.plan = self._plan(session, facts, look)
            sending = [action for action in plan.actions if isinstance(action, SendBlobs)]
            check_room(facts, sum(action.room for action in sending))
            if not done:
                apply_plan(session, plan, self.run_id, ends=True)
        if plan.actions:
            RunStore().note_switch(session.host.name, self.manifest.id, self.run_id, owner())
        self._done(result, plan)
        remember(session, facts)

    def _tail(self, session: Session, facts: Facts) -> tuple[Step, ...]:
        """Return the steps to stage, switch and prune on a device without a store.

        Their contents are computed when all files are hashed.
        """
        if facts.store is not False or not backend_for(facts).one_stream:
            return ()

        @cache
        def made() -> tuple[Step, ...]:
            survey = Survey(session, facts, self.manifest, self.options.keep)
            actions = survey.look(there=frozenset(self.manifest.blobs)).actions
            return backend_for(facts).turns(actions, self.run_id)[0].steps

        return tuple(
            Step(name, lambda n=n: made()[n].says(), lambda n=n: made()[n].frame())  # type: ignore[misc]
            for n, name in enumerate(("stage", "switch", "prune"))
        )

    def _look(self, survey: Survey, look: Look | None, *, expected: bool) -> Look:
        """Take the lease if there is work, and return a state that holds until this push changes
        it.

        `expected` is True if there is probably work.
        """
        verify = self.options.verify
        if look is None and expected and not verify:
            return survey.leased()
        look = look or survey.look(verify=verify)
        return survey.again(look, verify=verify) if look.actions else look

    def _done(self, result: DeviceResult[None], plan: DevicePlan) -> None:
        result.plan = plan
        result.outcome = "changed" if plan.actions else "unchanged"
        result.text = f"release {self.manifest.id}"

    def _plan(self, session: Session, facts: Facts, look: Look) -> DevicePlan:
        return DevicePlan(
            host=session.host,
            facts=facts,
            target="",
            manifest=self.manifest,
            actions=look.actions,
            current=look.state.current,
        )


class Remembered(Struct, frozen=True):
    """The cached facts of a device.

    `wanted` are the words of the inventory that it was found by.
    """

    identity: str
    wanted: tuple[str, ...]
    machine: str | None
    lab: bool
    base_dir: str
    tools: Tools


def remembered(session: Session) -> Facts | None:
    """Return the cached facts that a question about a release needs; None for an unknown device."""
    try:
        record = read_plain(Remembered, json.loads(_path(session).read_text("utf-8")), "facts", "")
    except (OSError, ValueError, InputError):
        return None
    if (record.identity, record.wanted) != (session.identity, _wanted(session)):
        return None
    return Facts(
        base_dir=record.base_dir,
        tools=record.tools,
        store=True,
        machine=record.machine,
        lab=record.lab,
    )


def remember(session: Session, facts: Facts) -> None:
    """Cache the facts. A home that cannot be written costs only a round trip."""
    if not facts.posix:
        return
    record = Remembered(
        identity=session.identity,
        wanted=_wanted(session),
        machine=facts.machine,
        lab=facts.lab,
        base_dir=facts.base_dir,
        tools=facts.tools,
    )
    write_whole(_path(session), json.dumps(to_plain(record)).encode())


def _path(session: Session) -> Path:
    name = hashlib.sha256(f"{session.transport.describe}\n{session.host.name}".encode())
    return fleet_home() / "devices" / f"{name.hexdigest()[:24]}.json"


def _wanted(session: Session) -> tuple[str, ...]:
    return session.host.base_dir, session.host.identity or ""
