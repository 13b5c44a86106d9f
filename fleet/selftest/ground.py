"""Rungs below the runtime: tools, packaging, rules, a transfer."""

from __future__ import annotations

import os

from fleet.device.shell import device_script, framed
from fleet.engine.deploy.switch import carry_out
from fleet.model.errors import ConnectionLostError
from fleet.model.events import Event, Progress
from fleet.model.files import file_ref, human_bytes
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob, SendBlobs
from fleet.model.system import SystemSpec
from fleet.ops.system.access import ruled
from fleet.ops.system.packaging import installed, offered
from fleet.selftest.bench import Bench
from fleet.selftest.ladder import RungVerdict, Undecided, judge

_NEEDED = {"dd", "find", "wc", "tr", "od", "grep", "readlink", "stat", "replace"}
_RESUMED = 1.6  # share of the size: with one cut and a resume, fleet sends no more than this


@judge("tools")
def tools(bench: Bench) -> RungVerdict:
    """Try each tool as the scripts use it. Tools outside `_NEEDED` have alternatives."""
    command = device_script("tools", f"{bench.folder}-tools")
    done = bench.session.ask(command, "tools", mutates=True)
    rows = {row[0]: row[1] for row in framed(done.text, "fleet-tools 1", bench.session.host.name)}
    lacking = sorted(name for name in _NEEDED if rows.get(name) != "yes")
    others = sorted(
        name for name, answer in rows.items() if answer != "yes" and name not in _NEEDED
    )
    observed = f"these do not work: {', '.join(lacking)}" if lacking else "all needed tools work"
    observed += f"; fleet uses another way for: {', '.join(others)}" if others else ""
    return RungVerdict(not lacking, "each tool works as fleet needs it", observed, done.text)


@judge("packages")
def packages(bench: Bench) -> RungVerdict:
    """Decide whether a packaging of data/fastrpc.yaml is installed or offered."""
    state = bench.system
    if state.manager is None:
        raise Undecided("no-manager")
    have = installed(state)
    row = have or offered(SystemSpec(fastrpc="auto"), state, bench.facts.soc.model)
    if row is None and bench.facts.lab:
        raise Undecided("emulated")  # the library of such a board comes without a package
    words = "\n".join(f"{name} {observed}" for name, observed in state.packages.items())
    observed = f"{row.id}, {'installed' if have else 'offered'}" if row else "neither"
    return RungVerdict(row is not None, "a packaging is installed or offered", observed, words)


@judge("rules")
def rules(bench: Bench) -> RungVerdict:
    """Compare group and mode of each node with the rules. Access lists may also open a node."""
    state = bench.system
    wrong, words = [], []
    for node in bench.facts.nodes:
        given = ruled(node.path, state.rules, setfacl="setfacl" in state.tools)
        if given is None or not node.exists:
            continue
        group, mode = given
        words.append(f"{node.path}: {node.group} {node.mode}; by the rules {group} {mode}")
        same_mode = mode is None or (node.mode is not None and int(node.mode, 8) == int(mode, 8))
        if node.open_error != "" and not (group in {None, node.group} and same_mode):
            wrong.append(node.path)
    if not words:
        raise Undecided("no-rules")
    observed = (
        f"the udev rules did not set the group and mode of {', '.join(wrong)}"
        if wrong
        else f"{len(words)} nodes as ruled"
    )
    return RungVerdict(
        not wrong,
        "each device node has the group and mode that the udev rules set",
        observed,
        "\n".join(words),
    )


class _Cut:
    """A listener that cuts the connection once, after half of the bytes."""

    def __init__(self, half: int) -> None:
        self._half, self.done = half, False

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and event.done >= self._half and not self.done:
            self.done = True
            raise ConnectionLostError("cut by the selftest")


@judge("transfer")
def transfer(bench: Bench) -> RungVerdict:
    """Send random bytes with one cut connection; the device hashes the result."""
    room = bench.facts.disk.room_bytes
    size = bench.bulk if room is None else min(bench.bulk, room // 4)
    source = bench.work / "bulk"
    with source.open("wb") as stream:
        for start in range(0, size, 1 << 20):
            stream.write(os.urandom(min(1 << 20, size - start)))
    bulk = file_ref(source, "bulk")
    session, before, listener = bench.session, bench.session.payload_bytes, bench.session.say
    session.say = cut = _Cut(size // 2)
    try:
        send = SendBlobs((Blob(bulk),))
        carry_out(session, bench.own, Manifest("selftest-bulk", (bulk,)), (send,), bench.run_id)
    finally:
        session.say = listener
        source.unlink()
    sent = session.payload_bytes - before
    how = "connection cut once" if cut.done else "connection never cut"
    observed = f"a file of {human_bytes(size)} arrived; fleet sent {human_bytes(sent)} ({how})"
    holds = cut.done and sent <= size * _RESUMED
    return RungVerdict(
        holds,
        "after a cut connection, fleet continues and does not send the first half again",
        observed,
    )
