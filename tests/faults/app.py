"""A small release, deployed as the engine does it, so that every fault can be put in its way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet.engine.deploy.switch import apply_plan
from fleet.engine.lease.lease import Lease
from fleet.engine.session import Session
from fleet.engine.states import ask_state, facts_of
from fleet.model.events import Event
from fleet.model.files import file_ref
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan
from fleet.ops.release import actions_for

HEALTHY = ("true",)


def app_of(
    folder: Path,
    contents: Mapping[str, bytes],
    *,
    health: Sequence[str] = HEALTHY,
    timeout: float = 20,
    name: str = "app",
) -> Manifest:
    """A release of these files whose health probe is a real program."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, (place, data) in enumerate(contents.items()):
        path = folder / f"{number}"
        path.write_bytes(data)
        files.append(file_ref(path, place, executable=place.startswith("bin/")))
    probe = {"argv": list(health), "cwd": ".", "config": "", "timeout": timeout}
    return Manifest(name, tuple(files), {"A": "1"}, (), {"health": probe})


def small(folder: Path, marker: str, **more: Any) -> Manifest:
    contents = {
        "lib/a b.so": marker.encode() * 20_000,
        "lib/large.so": marker.encode() * 400_000,
        "bin/tool": b"#!/bin/sh\nexit 0\n",
        "data/same": b"same" * 1000,
    }
    return app_of(folder, contents, **more)


def deploy(
    host: Host,
    app: Manifest,
    listener: Callable[[Event], None] = lambda _: None,
    *,
    session: Session | None = None,
) -> Session:
    """As `fleet deploy` does it, without a playbook; the session is closed and tells the rest."""
    session = session or Session(host, listener)
    session.open()
    try:
        deploy_in(session, app)
    finally:
        session.close()
    return session


def deploy_in(session: Session, app: Manifest) -> bool:
    """The same in an open session; True when something was done."""
    facts = facts_of(session)
    with Lease(session, "deploy app", "run1") as lease:
        state = ask_state(session, facts, app)
        actions = actions_for(app, state, 2)
        if actions:
            lease.take()
        plan = DevicePlan(session.host, facts, "t", app, actions=actions, current=state.current)
        apply_plan(session, plan, "run1")
    return bool(actions)


def live(base: Path, *apps: Manifest) -> Manifest:
    """The release that is current; every blob with a name, and every file of it, is whole."""
    for blob in (base / "store").iterdir():
        if blob.is_file() and not blob.name.endswith(".part"):
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    current = (base / "current" / apps[0].name).resolve()
    app = {one.id: one for one in apps}[current.name]
    for item in app.files:
        content = (current / item.name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == item.sha256
    return app
