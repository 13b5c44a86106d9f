"""A workstation for lease tests: one process that can be stopped, continued and killed.

argv: JSON of the settings. It says what happens on standard output, one word a line first.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from fleet.engine.lease.lease import Lease
from fleet.engine.session import Session
from fleet.engine.transfer.context import TransferContext, TransferOptions
from fleet.engine.transfer.upload import Upload
from fleet.facts.gather import gather
from fleet.model.command import script
from fleet.model.deadline import Deadline
from fleet.model.errors import FleetError, LeaseHeldError, LeaseLostError
from fleet.model.files import file_ref
from fleet.model.inventory import Host
from fleet.model.manifest import Manifest
from fleet.model.plan import Blob

ACTION = """
n=${3##*.}
printf 'begin %s\\n' "$2 $n" >> "$1"
while read -r _; do :; done < /proc/self/mountinfo
printf 'end %s\\n' "$2 $n" >> "$1"
"""


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


def host_of(settings: dict[str, Any]) -> Host:
    return Host(
        name="board", address="127.0.0.1", port=settings["port"], user=settings["user"],
        identity_files=(Path(settings["identity"]),), known_hosts=Path(settings["known_hosts"]),
        base_dir=settings["base"], connect_timeout=30.0,
    )  # fmt: skip


def contend(session: Session, settings: dict[str, Any]) -> None:
    """Rounds of two actions. The log on the board holds the generation of each."""
    dice = random.Random(settings["name"])
    done = lost = held = 0
    while done < settings["rounds"]:
        try:
            with Lease(session, "contend", settings["name"], ttl=settings["ttl"]) as lease:
                for action in range(2):
                    lease.guarded(script("true"))
                    assert lease.ticket is not None
                    words = f"{lease.ticket.generation} {settings['name']}-{action}"
                    session.ask(script(ACTION, settings["log"], words, ""), "act", mutates=True)
            done += 1
        except LeaseHeldError:
            held += 1
            time.sleep(dice.uniform(0.05, 0.4))
        except LeaseLostError:
            lost += 1
    say("done", done, lost, held)


def two_steps(session: Session, settings: dict[str, Any]) -> None:
    with Lease(session, "two steps", ttl=settings["ttl"]):
        step = script('echo "$2" >> "$1"', settings["log"])
        session.ask(script(step.argv[2], settings["log"], "one"), "one", mutates=True)
        before = session.traffic.round_trips
        say("ready")
        sys.stdin.readline()
        try:
            session.ask(script(step.argv[2], settings["log"], "two"), "two", mutates=True)
            say("written")
        except LeaseLostError as error:
            say("lost", session.traffic.round_trips - before, error.message)


def upload(session: Session, settings: dict[str, Any]) -> None:
    item = file_ref(Path(settings["file"]), "lib/large.so")
    facts = gather(session.transport, session.host, Deadline(60))
    session.transfer = TransferContext(TransferOptions(carrier=settings["carrier"]))
    with Lease(session, "upload", ttl=settings["ttl"]):
        say("ready")
        try:
            Upload(session, facts, Manifest("app", (item,))).send([Blob(item)])
            say("sent")
        except LeaseLostError as error:
            say("lost", session.payload_bytes, error.message)


def main() -> None:
    settings = json.loads(sys.argv[1])
    session = Session(host_of(settings), lambda _: None)
    session.open()
    try:
        {"contend": contend, "two_steps": two_steps, "upload": upload}[settings["do"]](
            session, settings
        )
    except FleetError as error:
        say("failed", type(error).__name__, error.message)
    finally:
        session.close()


if __name__ == "__main__":
    main()
