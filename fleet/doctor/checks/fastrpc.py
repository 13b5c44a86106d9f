"""Checks of the way to the DSP: groups, device nodes, libcdsprpc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Seen
from fleet.doctor.subject import device_machine, subjects
from fleet.model.diagnosis import Check
from fleet.model.facts import DeviceNode
from fleet.ops.system.access import CDSP, DENIED, HEAP, readable
from fleet.ops.system.fastrpc import DEFAULT_GROUP

_GROUPS = Maker("groups", "user")
_NODES = Maker("nodes", "nodes")
_HEAP = Maker("heap", "nodes")
_LIBRARY = Maker("libcdsprpc", "library")
_FIND = "ldconfig -p | grep cdsprpc; ls -l /vendor/lib64/libcdsprpc.so"
_NO_DSP = "the emulator does not need this library, because it has no DSP"


def needs_dsp(seen: Seen) -> bool:
    """False where only the emulator can be: an x86_64 machine that is no lab board."""
    return not seen.facts.emulated or seen.facts.lab


def groups(seen: Seen) -> Iterator[Check]:
    """The login has the groups that the database gives it, as far as nodes ask for them."""
    user = seen.facts.user
    waiting = set(user.groups_db) - set(user.groups_live)
    closed = {node.group for node in seen.facts.nodes if node.open_error in DENIED}
    asked = sorted(waiting & closed)
    said = f"session: {' '.join(user.groups_live)}; database: {' '.join(user.groups_db)}"
    command = 'id -nG; id -nG "$(id -un)"'
    refused = [node for node in seen.facts.nodes if node.open_error in DENIED]
    lacking = [node for node in refused if _to_join(node) not in user.groups_db]
    facts = {"user.member": "no" if lacking else "yes"} if refused else {}
    if asked:
        text = (
            f"{user.name} is in the group {', '.join(asked)} only after a new login: log in again"
        )
        yield _GROUPS.bad(text, {"user.groups": "pending", **facts}, command, said)
    else:
        text = " ".join(user.groups_live) or "unknown"
        yield _GROUPS.ok(text, {"user.groups": "ok", **facts}, command, said)


def _to_join(node: DeviceNode) -> str:
    """The group of a node that lets its group read; else the one that the rules will give it."""
    own = node.group if readable(node.mode, False, True) else None
    return own if own not in {None, "root"} else DEFAULT_GROUP


def nodes(seen: Seen) -> Iterator[Check]:
    """One node of the compute DSP opens for this user."""
    if not needs_dsp(seen):
        yield _NODES.ok(_NO_DSP)
        return
    yield _opened(_NODES, seen.facts.nodes, CDSP, "node.cdsp")


def heap(seen: Seen) -> Iterator[Check]:
    """The DMA heap opens, from which buffers for the DSP come."""
    if needs_dsp(seen):
        yield _opened(_HEAP, seen.facts.nodes, HEAP, "node.heap")


def _opened(make: Maker, every: Sequence[DeviceNode], paths: Sequence[str], fact: str) -> Check:
    mine = [node for node in every if node.path in paths]
    there = [node for node in mine if node.exists]
    shown = there or mine[:1]
    command = "ls -l " + " ".join(node.path for node in shown)
    said = "; ".join(_said(node) for node in shown) or "fleet did not look for device nodes"
    good = [node for node in there if node.open_error == ""]
    if good:
        return make.ok(f"{good[0].path} opens", {fact: "ok"}, command, said)
    word = (there[0].open_error or "unknown") if there else "ENOENT" if mine else "unknown"
    if word == "unknown":
        return make.unknown(said, {fact: word}, command)
    # libcdsprpc goes on with the FastRPC ioctl where there is no heap at all.
    if fact == "node.heap" and word not in DENIED:
        return make.warn(said, {fact: word}, command, said)
    return make.bad(said, {fact: word}, command, said)


def _said(node: DeviceNode) -> str:
    if not node.exists:
        return f"{node.path}: no such file"
    owner = f"{node.mode or '?'} {node.owner or '?'}:{node.group or '?'}"
    result = {"": "opens", None: "not tried"}.get(node.open_error, f"open: {node.open_error}")
    return f"{node.path} {owner}, {result}"


def library(seen: Seen) -> Iterator[Check]:
    """libcdsprpc.so is found under its unversioned name and has what QNN asks for."""
    found = seen.facts.libcdsprpc
    said = " ".join(found) or "not found"
    if not needs_dsp(seen):
        yield _LIBRARY.ok(_NO_DSP)
    elif not found:
        text = "the library libcdsprpc.so is not installed"
        yield _LIBRARY.bad(text, {"lib.cdsprpc": "absent"}, _FIND, said)
    elif not seen.facts.libcdsprpc_unversioned:
        text = (
            "the device has only a versioned libcdsprpc, but the QNN stub library loads "
            "libcdsprpc.so"
        )
        yield _LIBRARY.bad(text, {"lib.cdsprpc": "soname-only"}, _FIND, said)
    else:
        yield _inside(seen, said)


def _inside(seen: Seen, said: str) -> Check:
    symbols = {row[0]: row[-1] for row in seen.pairs("dspqueue")}
    machines = {seen.elves[path].machine for path in symbols if path in seen.elves}
    wanted = {subject.machine for subject in subjects(seen)} | {device_machine(seen)}
    # Boards of a lab have stand-ins of the machine that runs them.
    if machines and not machines & wanted and not seen.facts.lab:
        text = f"libcdsprpc.so is built for {', '.join(sorted(machines))}"
        return _LIBRARY.bad(text, {"lib.cdsprpc": "wrong-machine"}, _FIND, said)
    if symbols and "yes" not in symbols.values():
        text = "libcdsprpc.so is too old: it lacks the function dspqueue_read"
        command = f"grep -c dspqueue_read {next(iter(symbols))}"
        return _LIBRARY.bad(text, {"lib.cdsprpc": "no-dspqueue"}, command, "0")
    return _LIBRARY.ok(said, {"lib.cdsprpc": "ok"}, _FIND, said)
