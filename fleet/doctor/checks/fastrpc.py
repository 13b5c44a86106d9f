"""Checks of the way to the DSP: groups, device nodes, libcdsprpc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleet.doctor.checks.making import Maker
from fleet.doctor.seen import Seen, device_machine, subjects
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


def needs_dsp(sample: Seen) -> bool:
    """Return True unless the device can use only the emulator: x86_64, and no lab board."""
    return not sample.facts.emulated or sample.facts.lab


def groups(sample: Seen) -> Iterator[Check]:
    """The login has the groups that the database gives it, as far as nodes ask for them."""
    user = sample.facts.user
    waiting = set(user.groups_db) - set(user.groups_live)
    closed = {node.group for node in sample.facts.nodes if node.open_error in DENIED}
    asked = sorted(waiting & closed)
    output = f"session: {' '.join(user.groups_live)}; database: {' '.join(user.groups_db)}"
    command = 'id -nG; id -nG "$(id -un)"'
    refused = [node for node in sample.facts.nodes if node.open_error in DENIED]
    lacking = [node for node in refused if _to_join(node) not in user.groups_db]
    facts = {"user.member": "no" if lacking else "yes"} if refused else {}
    if asked:
        text = (
            f"{user.name} is in the group {', '.join(asked)} only after a new login: log in again"
        )
        yield _GROUPS.bad(text, {"user.groups": "pending", **facts}, command, output)
    else:
        text = " ".join(user.groups_live) or "unknown"
        yield _GROUPS.ok(text, {"user.groups": "ok", **facts}, command, output)


def _to_join(node: DeviceNode) -> str:
    """Return the group of a node if that group may read it, else the group that the rules set."""
    own = node.group if readable(node.mode, False, True) else None
    return own if own not in {None, "root"} else DEFAULT_GROUP


def nodes(sample: Seen) -> Iterator[Check]:
    """One node of the compute DSP opens for this user."""
    if not needs_dsp(sample):
        yield _NODES.ok(_NO_DSP)
        return
    yield _opened(_NODES, sample.facts.nodes, CDSP, "node.cdsp")


def heap(sample: Seen) -> Iterator[Check]:
    """The DMA heap opens, from which buffers for the DSP come."""
    if needs_dsp(sample):
        yield _opened(_HEAP, sample.facts.nodes, HEAP, "node.heap")


def _opened(make: Maker, every: Sequence[DeviceNode], paths: Sequence[str], fact: str) -> Check:
    mine = [node for node in every if node.path in paths]
    there = [node for node in mine if node.exists]
    shown = there or mine[:1]
    command = "ls -l " + " ".join(node.path for node in shown)
    output = "; ".join(_node_text(node) for node in shown) or "fleet did not look for device nodes"
    good = [node for node in there if node.open_error == ""]
    if good:
        return make.ok(f"{good[0].path} opens", {fact: "ok"}, command, output)
    word = (there[0].open_error or "unknown") if there else "ENOENT" if mine else "unknown"
    if word == "unknown":
        return make.unknown(output, {fact: word}, command)
    # Without any heap, libcdsprpc continues with the FastRPC ioctl.
    if fact == "node.heap" and word not in DENIED:
        return make.warn(output, {fact: word}, command, output)
    return make.bad(output, {fact: word}, command, output)


def _node_text(node: DeviceNode) -> str:
    if not node.exists:
        return f"{node.path}: no such file"
    owner = f"{node.mode or '?'} {node.owner or '?'}:{node.group or '?'}"
    result = {"": "opens", None: "not tried"}.get(node.open_error, f"open: {node.open_error}")
    return f"{node.path} {owner}, {result}"


def library(sample: Seen) -> Iterator[Check]:
    """libcdsprpc.so is found under its unversioned name and has what QNN asks for."""
    paths = sample.facts.libcdsprpc
    output = " ".join(paths) or "not found"
    if not needs_dsp(sample):
        yield _LIBRARY.ok(_NO_DSP)
    elif not paths:
        text = "the library libcdsprpc.so is not installed"
        yield _LIBRARY.bad(text, {"lib.cdsprpc": "absent"}, _FIND, output)
    elif not sample.facts.libcdsprpc_unversioned:
        text = (
            "the device has only a versioned libcdsprpc, but the QNN stub library loads "
            "libcdsprpc.so"
        )
        yield _LIBRARY.bad(text, {"lib.cdsprpc": "soname-only"}, _FIND, output)
    else:
        yield _inside(sample, output)


def _inside(sample: Seen, output: str) -> Check:
    symbols = {row[0]: row[-1] for row in sample.pairs("dspqueue")}
    machines = {sample.elves[path].machine for path in symbols if path in sample.elves}
    wanted = {subject.machine for subject in subjects(sample)} | {device_machine(sample)}
    # The libraries on lab boards are stand-ins for the machine that runs them.
    if machines and not machines & wanted and not sample.facts.lab:
        text = f"libcdsprpc.so is built for {', '.join(sorted(machines))}"
        return _LIBRARY.bad(text, {"lib.cdsprpc": "wrong-machine"}, _FIND, output)
    if symbols and "yes" not in symbols.values():
        text = "libcdsprpc.so is too old: it lacks the function dspqueue_read"
        command = f"grep -c dspqueue_read {next(iter(symbols))}"
        return _LIBRARY.bad(text, {"lib.cdsprpc": "no-dspqueue"}, command, "0")
    return _LIBRARY.ok(output, {"lib.cdsprpc": "ok"}, _FIND, output)
