"""Checks of the way to the DSP: groups, device nodes, libcdsprpc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleet.doctor.seen import Seen
from fleet.doctor.subject import device_machine, subjects
from fleet.model.diagnosis import BAD, OK, UNKNOWN, WARN, Check
from fleet.model.facts import DeviceNode
from fleet.ops.system.access import CDSP, HEAP

_REFUSED = {"EACCES", "EPERM"}


def needs_dsp(seen: Seen) -> bool:
    """False where only the emulator can be: an x86_64 machine that is no lab board."""
    return not seen.facts.emulated or seen.facts.lab


def groups(seen: Seen) -> Iterator[Check]:
    """The login has the groups that the database gives it, as far as nodes ask for them."""
    user = seen.facts.user
    waiting = sorted(set(user.groups_db) - set(user.groups_live))
    closed = [one for one in seen.facts.nodes if one.open_error in _REFUSED]
    asked = [one for one in waiting if one in {node.group for node in closed}]
    said = f"session: {' '.join(user.groups_live)}; database: {' '.join(user.groups_db)}"
    command = 'id -nG; id -nG "$(id -un)"'
    if asked:
        text = f"{user.name} is in {', '.join(asked)}, but this login is older than that"
        yield Check("groups", "user", BAD, text, {"user.groups": "pending"}, command, said)
    else:
        yield Check(
            "groups",
            "user",
            OK,
            " ".join(user.groups_live) or "unknown",
            {"user.groups": "ok"},
            command,
            said,
        )


def nodes(seen: Seen) -> Iterator[Check]:
    """One node of the compute DSP opens for this user."""
    if not needs_dsp(seen):
        yield Check("nodes", "nodes", OK, "none needed: the emulator has no DSP")
        return
    yield _opened("nodes", seen.facts.nodes, CDSP, "node.cdsp", BAD)


def heap(seen: Seen) -> Iterator[Check]:
    """The DMA heap opens, from which buffers for the DSP come."""
    if not needs_dsp(seen):
        return
    check = _opened("heap", seen.facts.nodes, HEAP, "node.heap", WARN)
    # libcdsprpc goes on with the FastRPC ioctl where there is no heap at all.
    yield check


def _opened(
    name: str, every: Sequence[DeviceNode], paths: Sequence[str], fact: str, worst: str
) -> Check:
    mine = [one for one in every if one.path in paths]
    there = [one for one in mine if one.exists]
    shown = there or mine[:1]
    command = "ls -l " + " ".join(one.path for one in shown or mine)
    said = "; ".join(_said(one) for one in shown) or "no node was looked for"
    if not mine:
        return Check(name, "nodes", UNKNOWN, said, {fact: "unknown"})
    good = [one for one in there if one.open_error == ""]
    if good:
        return Check(name, "nodes", OK, f"{good[0].path} opens", {fact: "ok"}, command, said)
    word = (there[0].open_error or "unknown") if there else "ENOENT"
    status = UNKNOWN if word == "unknown" else BAD if word in _REFUSED else worst
    return Check(name, "nodes", status, said, {fact: word}, command, said)


def _said(node: DeviceNode) -> str:
    if not node.exists:
        return f"{node.path}: no such file"
    owner = f"{node.mode or '?'} {node.owner or '?'}:{node.group or '?'}"
    result = {"": "opens", None: "not tried"}.get(node.open_error, f"open: {node.open_error}")
    return f"{node.path} {owner}, {result}"


def library(seen: Seen) -> Iterator[Check]:
    """libcdsprpc.so is found under its unversioned name and has what QNN asks for."""
    if not needs_dsp(seen):
        yield Check("libcdsprpc", "library", OK, "not needed: the emulator has no DSP")
        return
    found = seen.facts.libcdsprpc
    command = "ldconfig -p | grep cdsprpc; ls -l /vendor/lib64/libcdsprpc.so"
    said = " ".join(found) or "not found"
    if not found:
        yield Check(
            "libcdsprpc",
            "library",
            BAD,
            "libcdsprpc is not installed",
            {"lib.cdsprpc": "absent"},
            command,
            said,
        )
    elif not seen.facts.libcdsprpc_unversioned:
        yield Check(
            "libcdsprpc",
            "library",
            BAD,
            "only the versioned name is there; the stub asks for libcdsprpc.so",
            {"lib.cdsprpc": "soname-only"},
            command,
            said,
        )
    else:
        yield _inside(seen, command, said)


def _inside(seen: Seen, command: str, said: str) -> Check:
    symbols = {row[0]: row[-1] for row in seen.pairs("dspqueue")}
    machines = {seen.elves[path].machine for path in symbols if path in seen.elves}
    wanted = {one.machine for one in subjects(seen)} | {device_machine(seen)}
    # Boards of a lab have stand-ins of the machine that runs them.
    if machines and not machines & wanted and not seen.facts.lab:
        text = f"libcdsprpc.so is for {', '.join(machines) or 'no machine'}"
        return Check(
            "libcdsprpc", "library", BAD, text, {"lib.cdsprpc": "wrong-machine"}, command, said
        )
    if symbols and "yes" not in symbols.values():
        text = "libcdsprpc.so is too old: it has no dspqueue_read"
        shown = f"grep -c dspqueue_read {next(iter(symbols))}"
        return Check("libcdsprpc", "library", BAD, text, {"lib.cdsprpc": "no-dspqueue"}, shown, "0")
    return Check("libcdsprpc", "library", OK, said, {"lib.cdsprpc": "ok"}, command, said)
