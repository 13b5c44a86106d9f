"""Plain files as a release: everything a deploy has, but no runtime, runner or NPU session.

The base folder and the tools of a device are kept for one identity (host key or serial number), so
that a push that finds nothing to do asks nothing else. What is on the device is asked each time; a
Windows PC is asked for all of its facts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
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
from fleet.model.home import fleet_home, private_folder, write_private
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
    """How to go about it; as in fleet.engine.options.DeployOptions."""

    verify: bool = False
    accept_new: bool = False
    parallel: int = 16
    keep: int = KEEP
    transfer: TransferOptions | None = None


class Push:
    """Files that become `<base>/current/<name>/` on every host."""

    def __init__(
        self,
        name: str,
        sources: Sequence[Path] | SourceFiles,
        hosts: Sequence[Host],
        listener: Listener,
        options: PushOptions | None = None,
    ) -> None:
        """`sources`: paths, or what was started. Raises InputError for what cannot be sent."""
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
        """What is to be there; waits until all is hashed. Raises InputError."""
        return Manifest(self.name, self.sources.files(), origin={"kind": "files"})

    def push(
        self,
        meanwhile: Callable[[], object] | None = None,
        begun: Mapping[str, Transport] | None = None,
    ) -> list[DeviceResult[None]]:
        """Bring them; a device that has them all is left alone. For the arguments see the pool."""
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
        """What takes a while is known when devices are connected: how large files compress, and
        the id of a release of thousands of files.
        """
        for late in self.sources.late() if self.transfer.options.compress == "auto" else ():
            self.transfer.sampler.sample(late.file)
        with suppress(InputError):
            _ = self.manifest.id

    def _push(self, session: Session, result: DeviceResult[None]) -> None:
        """One round trip to a device that is known and has everything."""
        late = self.sources.late()
        if self.transfer.bulk:
            session.expect_bulk()
        known = None if self.options.verify or late else remembered(session)
        keep = self.options.keep
        seen = Survey(session, known, self.manifest, keep).first() if known else None
        if known and seen and seen.state.sealed and not seen.actions:
            self._done(result, self._plan(session, known, seen))
            return
        facts = facts_of(session, short=True)
        with Lease(session, f"push {self.name}", self.run_id):
            tail = self._tail(session, facts) if len(late) == len(self.sources) else ()
            facts, there, done = send_speculatively(session, facts, self.name, late, tail)
            if known is None or known.base_dir != facts.base_dir:
                seen = None
            survey = Survey(session, facts, self.manifest, keep)
            if there:
                seen = survey.look(there=there)
            else:
                seen = self._look(survey, seen, expected=known is not None or bool(late))
            plan = result.plan = self._plan(session, facts, seen)
            sending = [action for action in plan.actions if isinstance(action, SendBlobs)]
            check_room(facts, sum(action.room for action in sending))
            if not done:
                apply_plan(session, plan, self.run_id, ends=True)
        if plan.actions:
            RunStore().note_switch(session.host.name, self.manifest.id, self.run_id, owner())
        self._done(result, plan)
        remember(session, facts)

    def _tail(self, session: Session, facts: Facts) -> tuple[Step, ...]:
        """Stage, switch and prune on a device without a store, known when all is hashed."""
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

    def _look(self, survey: Survey, seen: Look | None, *, expected: bool) -> Look:
        """What holds until it is changed. `expected`: there is something to do."""
        verify = self.options.verify
        if seen is None and expected and not verify:
            return survey.leased()
        seen = seen or survey.look(verify=verify)
        return survey.again(seen, verify=verify) if seen.actions else seen

    def _done(self, result: DeviceResult[None], plan: DevicePlan) -> None:
        result.plan = plan
        result.outcome = "changed" if plan.actions else "unchanged"
        result.text = f"release {self.manifest.id}"

    def _plan(self, session: Session, facts: Facts, seen: Look) -> DevicePlan:
        return DevicePlan(
            host=session.host,
            facts=facts,
            target="",
            manifest=self.manifest,
            actions=seen.actions,
            current=seen.state.current,
        )


class Remembered(Struct, frozen=True):
    """What is kept of a device; `wanted` are the words of the inventory that it was found by."""

    identity: str
    wanted: tuple[str, ...]
    machine: str | None
    lab: bool
    base_dir: str
    tools: Tools


def remembered(session: Session) -> Facts | None:
    """Just enough of the facts to ask for the state of a release; None for a stranger."""
    try:
        found = read_plain(Remembered, json.loads(_path(session).read_text("utf-8")), "facts", "")
    except (OSError, ValueError, InputError):
        return None
    if (found.identity, found.wanted) != (session.identity, _wanted(session)):
        return None
    return Facts(
        base_dir=found.base_dir,
        tools=found.tools,
        store=True,
        machine=found.machine,
        lab=found.lab,
    )


def remember(session: Session, facts: Facts) -> None:
    """Keep them; a home that cannot be written costs a round trip, nothing else."""
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
    path = _path(session)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        private_folder(path.parent)
        write_private(part, json.dumps(to_plain(record)))
        part.replace(path)


def _path(session: Session) -> Path:
    name = hashlib.sha256(f"{session.transport.describe}\n{session.host.name}".encode())
    return fleet_home() / "devices" / f"{name.hexdigest()[:24]}.json"


def _wanted(session: Session) -> tuple[str, ...]:
    return session.host.base_dir, session.host.identity or ""
