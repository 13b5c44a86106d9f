"""Tasks on a Windows device by name, with the names, arguments and answers of the scripts.

`main` is called with the words of one command and returns the exit status. Standard input belongs
to the task. It also runs on POSIX, where the tests are.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

from fleet.device.store.files import is_file, reason, remove
from fleet.device.store.lease import FailedError, answer, boot, drop, free, guarded, take, who
from fleet.device.store.links_windows import WindowsLinks
from fleet.device.store.release import Releases
from fleet.device.store.stamp import own_of, say, text_of
from fleet.device.store.stream import Input
from fleet.device.store.worker import receive

LATE = 124
STRANGE = 250  # the program ended with a number that ssh cannot transmit, such as 0xC0000005
MARK = b"fleet-file\n"
PATH = "FLEET_PATH"  # of a release: prepended to PATH, which only the device knows


def err(text: str, status: int) -> int:
    """Print text to standard error and return the status."""
    sys.stderr.write(text + "\n")
    return status


def run(work: str, config: str, limit: str, feed: str, after: str, *argv: str) -> int:
    """Run a runner in its own work folder, and end it with its children at the limit; see
    run.sh.
    """
    remove(work)  # an existing path may be a link of another user
    os.makedirs(work, 0o700)
    with open(work + "/prompt.txt", "wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    if config:
        with open(work + "/config.json", "w", encoding="utf-8", newline="\n") as text:
            text.write(config)
    env = dict(os.environ)
    own = os.path.normpath(env.pop(PATH, ".")).lstrip(".")
    if "ADSP_LIBRARY_PATH" in env:
        env["ADSP_LIBRARY_PATH"] = os.path.normpath(env["ADSP_LIBRARY_PATH"])
    if own:
        env["PATH"] = own + os.pathsep + env.get("PATH", "")
    tool = os.path.normpath(argv[0])  # backslashes: the loader and FastRPC of Windows need them
    words = [sys.executable if argv[0] == "python3" else tool, *argv[1:]]
    status = start(words, work + "/prompt.txt" if feed == "prompt" else os.devnull, env, limit)
    if after == "clean":
        shutil.rmtree(work, ignore_errors=True)
    return status


def start(words: list[str], source: str, env: dict[str, str], limit: str) -> int:
    """Run a program that reads `source` for at most `limit` seconds; return its status."""
    if os.name == "nt" and words[0].rstrip(" .").lower().endswith((".bat", ".cmd")):
        return err(f"{words[0]} is a batch file: cmd.exe would read its arguments as code", 126)
    with open(source, "rb") as given:
        try:
            child = subprocess.Popen(words, stdin=given, env=env, start_new_session=os.name != "nt")
        except OSError as error:
            return err(f"{words[0]}: {reason(error)}", 127)
    late = threading.Event()
    timer = threading.Timer(float(limit), expire, (child, late))
    timer.daemon = True
    timer.start()
    code = child.wait()
    timer.cancel()
    return LATE if late.is_set() else ended(code)


def execute(limit: str, *argv: str) -> int:
    """Run a program without input for at most `limit` seconds."""
    sys.stdout.buffer.write(MARK)
    sys.stdout.buffer.flush()
    return run(tempfile.mkdtemp(), "", limit, "none", "clean", *argv)


def expire(child: subprocess.Popen[bytes], late: threading.Event) -> None:
    """Kill the program and everything that it started, at the limit."""
    late.set()
    if os.name == "nt":
        subprocess.run(
            ["taskkill", "/F", "/T", "/PID", str(child.pid)], capture_output=True, check=False
        )
    else:
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()


def ended(code: int) -> int:
    """Return a status that ssh can transmit. Print the Windows number of a crash."""
    if code < 0 and os.name != "nt":
        return 128 - code
    if 0 <= code <= 255:
        return code
    return err(f"the program ended with status 0x{code & 0xFFFFFFFF:08X}", STRANGE)


def collect(work: str, *patterns: str) -> int:
    """Print the files of a run that match the patterns, and remove `work`."""
    out = sys.stdout.buffer
    out.write(MARK)
    status = 44
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(glob.escape(work), *pattern.split("/")))):
            if not is_file(path):
                continue
            name = os.path.relpath(path, work).replace(os.sep, "/")
            out.write(f"file {os.path.getsize(path)} {name}\n".encode())
            with open(path, "rb") as stream:
                shutil.copyfileobj(stream, out)
            out.write(b"\n")
            status = 0
    out.write(b"end\n")
    out.flush()
    shutil.rmtree(work, ignore_errors=True)
    return status


def show(path: str, old: str = "") -> int:
    """Print a file; of `old` if the folder of `path` is missing."""
    if old and not os.path.isdir(os.path.dirname(path)):
        path = old
    out = sys.stdout.buffer
    out.write(MARK)
    with open(path, "rb") as stream:
        shutil.copyfileobj(stream, out)
    out.flush()
    return 0


def boot_id() -> int:
    """Print an id that changes with each boot."""
    say(boot())
    return 0


def state(base: str, name: str, release: str, how: str, *_: str) -> int:
    """Print the state of a release, as state.sh does, but never `sealed`."""
    Releases(WindowsLinks(), base, name).state(release, how, Input())
    return 0


def fsck(what: str, base: str, blocks: str, word: str) -> int:
    """Check the store, as fsck.sh does; return the exit status."""
    from fleet.device.store.fsck import check  # noqa: PLC0415 - sent for this call only

    return check(WindowsLinks(), what, base, blocks, word)


def status(base: str) -> int:
    """Print each live release, its health and history, as status.sh does."""
    say("fleet-status 1")
    system = WindowsLinks()
    names = sorted(os.listdir(base + "/current")) if os.path.isdir(base + "/current") else []
    for name in names:
        if name.startswith("."):
            continue
        release = system.live(base, name)
        rel = f"{base}/releases/{name}/{release}"
        own = own_of(base, name, release)
        record = text_of(own + "/manifest.json")
        whole = bool(release) and bool(record) and is_file(own + "/.installed")
        broken = 0
        with contextlib.suppress(ValueError, KeyError, TypeError):
            for file in json.loads(record or "{}").get("files", []):
                blob = "{}/store/{}".format(base, file["sha256"])
                broken += not system.leads(rel + "/" + file["name"], blob)
        health = "installed" if whole and not broken else "damaged"
        say(f"name {name} {release or '-'} {health} {broken}")
        with contextlib.suppress(OSError):
            say(f"made {name} {int(os.stat(own + '/.installed').st_mtime)}")
        for past in text_of(f"{base}/history/{name}").split():
            say(f"history {name} {past}")
        if record:
            say(f"manifest {name} " + " ".join(record.split("\n")))
    checked = text_of(base + "/fsck").split()
    say(*(f"fsck {word}" for word in checked[:1]), "end")
    return 0


WORKS: dict[str, Callable[..., int]] = {
    "boot_id": boot_id,
    "collect": collect,
    "exec": execute,
    "fsck": fsck,
    "receive": lambda base: receive(WindowsLinks(), base),
    "run": run,
    "show": show,
    "state": state,
    "status": status,
}
# The number of words of each; a reading command follows them once the lease is acquired.
LEASES: dict[str, tuple[Callable[..., object], int]] = {
    "lease_drop": (drop, 4),
    "lease_free": (free, 3),
    "lease_take": (take, 7),
    "lease_who": (who, 0),
}


def work(name: str, *args: str) -> int:
    """Run one of the tasks, which may contain another one."""
    if name == "lease_guard":
        return guarded(args, lambda then: main(*then))
    if name in LEASES:
        ask, count = LEASES[name]
        on = answer(ask, *args[:count])
        return work(*args[count:]) if args[count:] and (on or ask is who) else 0
    if name not in WORKS:
        return err(f"fleet does not support {name} on Windows; see docs/platforms.md", 70)
    return WORKS[name](*args)


def main(*words: str) -> int:
    """Run a command and report its errors."""
    name = words[0]
    try:
        return work(*words)
    except FailedError as error:
        return err(str(error), 74)
    except OSError as error:
        return err(f"{error.filename or name}: {reason(error)}", 74)
