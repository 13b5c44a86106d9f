"""The device worker, which receives blobs and makes releases in one process; Python 3.7 or newer.

argv: `receive <base>`: the stream of blobs.py. The stream may also contain `stage <name> <id> <run>
<bytes of the list> <of env.sh> <of the manifest>` with these bytes, `switch <name> <id> <run>` and
`prune <name> <keep>`. `state <base> <name> <id> <size|hash>`. `ahead <base> <name>`: for each line
`<key> <size> <name>` (tabs) of a file that may be sent before its hash is known, how much is there;
for the others `old <key> <blob> <bytes>`, the file in the live release. `sign <file> <bytes>`.
"""

import os
import sys

from fleet.device.store.blobs import Store
from fleet.device.store.files import EndedError, reason, sign
from fleet.device.store.links_posix import PosixLinks
from fleet.device.store.release import Releases
from fleet.device.store.stamp import say
from fleet.device.store.stream import Input


def receive(system: PosixLinks, base: str) -> int:
    """Carry out all frames of the stream; return the exit status."""
    stream = Input()
    try:
        store = Store(system, base, stream)
    except OSError as error:
        say(f"failed - {error.filename}: {reason(error)}")
        return 74
    step = "-"
    while True:
        words = stream.line().split()
        if not words:
            return 77 if store.bad else 0
        step = words[0] if words[0] in {"stage", "switch", "prune"} else "-"
        try:
            act(base, words, stream, store)
        except EndedError as end:
            say(end.line)
            return end.status
        except ImportError as error:
            say(f"failed - {error}")
            return 74
        except OSError as error:
            why = f"{error.filename or base}: {reason(error)}"
            say(f"unpruned {why}" if step == "prune" else f"failed {step} {why}")
            if step != "prune":
                return 74


def act(base: str, words: "list[str]", stream: Input, store: Store) -> None:
    """Carry out a frame: files, stage, switch, prune or a blob. No release after a bad blob."""
    if words[0] == "files":
        store.files(int(words[2]), int(words[3]))
        return
    if words[0] not in {"stage", "switch", "prune"}:
        store.blob(words)
        return
    if store.bad:
        raise EndedError(77, "held")
    releases = Releases(store.system, base, words[1])
    if words[0] == "stage":
        releases.stage(words, stream)
    elif words[0] == "switch":
        releases.switch(words[2], words[3])
    else:
        releases.prune(int(words[2]))


def main(what: str, *args: str) -> int:
    """Run a command and return the exit status."""
    os.umask(0o022)
    system = PosixLinks()
    try:
        if what == "receive":
            return receive(system, args[0])
        if what == "state":
            Releases(system, args[0], args[1]).state(args[2], args[3], Input())
        elif what == "ahead":
            Releases(system, args[0], args[1]).speculative(Input())
        else:
            sign(args[0], args[1])
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        return 74
    return 0
