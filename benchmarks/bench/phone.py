"""e: one blob to a phone over adb."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from fleet.lab import Lab, LabPhones

from . import fleetrows, sources
from .compare import Bench, Case, compare
from .fleetrows import API, CLI, NAMES
from .ground import PhoneGround
from .peers import ADBUTILS, CLIENT, shell
from .scenarios import parts_of, size_word
from .sources import MIB
from .stats import SECONDS, Bar, Figures, Result
from .tools import Command, Push, Tool
from .wiring import Endpoint, Wiring

SIZE = 256 * MIB
PUSH = "adb push"
SPEED = "at least 0.9 x the speed of adb push"
PUSH_HASHED = "adb push, sha256sum, sync"


def tools(ground: PhoneGround) -> list[Tool]:
    """adb's own push is the reference; it writes to the final path and believes the size."""

    def push(push: Push) -> Command:
        return Command((*ground.adb, "push", str(push.source), f"{ground.inbox}/"))

    def hashed(push: Push) -> Command:
        there = f"{ground.inbox}/{push.source.name}"
        far = f"sha256sum {there} && sync {there}"
        script = 'src=$1 to=$2 far=$3; shift 3; "$@" push "$src" "$to" && "$@" shell "$far"'
        return Command(shell(script, push.source, there, far, *ground.adb))

    def library(push: Push) -> Command:
        words = ("adbutils", str(push.source), ground.inbox, ground.port, ground.phone.serial)
        return Command((str(push.peers), str(CLIENT), *words))

    def cli(push: Push) -> Command:
        argv = fleetrows.cli(ground.inventory, push.source, NAMES[CLI])
        return Command(argv, fleetrows.environment(push.home))

    def api(push: Push) -> Command:
        argv = fleetrows.api(ground.inventory, push.source, NAMES[API])
        return Command(argv, fleetrows.environment(push.home))

    return [
        Tool(CLI, cli, "fleet"),
        Tool(API, api, "fleet", main=False),
        Tool(PUSH, push, "reference"),
        Tool(PUSH_HASHED, hashed, "reference"),
        Tool(ADBUTILS, library, module="adbutils"),
    ]


def over_adb(bench: Bench) -> Result:
    """A lab phone of its own, in memory as the boards are."""
    size = bench.bytes(SIZE)
    source = sources.blob(bench.fresh("source") / "big", size)
    wanted = sources.hashes(source)
    nowhere = Endpoint("phone", 0, "", "", "")
    wiring = Wiring(bench.folder / "nothing", (), Path())
    kind = "phone-emulator" if bench.kind == "user" else "auto"
    folder = bench.folder / "phones"
    with Lab.up(folder, count=0, phones=LabPhones(1, kind=kind), base_port=0) as lab:
        ground = PhoneGround(lab, bench.folder)
        homes = bench.folder / "homes"

        def command(tool: Tool) -> Command:
            scratch, home = bench.fresh("scratch"), homes / tool.name.replace(" ", "-")
            return tool.build(Push(source, nowhere, wiring, scratch, home, bench.peers))

        def before(_: Tool) -> None:
            ground.clean()
            shutil.rmtree(homes, ignore_errors=True)

        def check(tool: Tool) -> Figures:
            fleets = tool.kind == "fleet"
            folder = f"{ground.base}/current/{NAMES[tool.name]}" if fleets else ground.inbox
            return {"hash_alone": ground.check(wanted, folder)}

        rows, missing = compare(bench, tools(ground), Case(command, before, check))
        kind = ground.phone.kind
        ground.clean()
    result = Result(
        "e",
        f"{size_word(size)} to a phone over adb",
        PUSH,
        rows,
        bench.rounds,
        bars=(
            Bar(f"{SPEED}, whole process", CLI, (PUSH,), most=1 / 0.9),
            Bar(f"{SPEED}, open connection", API, (PUSH,), "inner", 1 / 0.9, to_field=SECONDS),
        ),
        columns=(("after_last_byte", "after the last byte s"),),
        missing=missing,
        notes=[*parts_of(rows), f"the phone is a lab {kind}; adb {_version(ground.adb[0])} here"],
    )
    alone = result.rows[0].median("hash_alone")
    if alone is not None:
        result.notes.append(f"sha256sum on the phone, alone: {alone:.2f} s")
    return result


def _version(adb: str) -> str:
    """`34.0.5`, of the second line that adb prints."""
    done = subprocess.run([adb, "version"], capture_output=True, text=True, check=True, timeout=60)
    found = [line for line in done.stdout.splitlines() if line.startswith("Version")]
    return found[0].split()[1] if found else "unknown"
