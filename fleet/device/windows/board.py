"""Work on a Windows device by name: the same names, arguments and answers as the scripts have.

`main` is called with the words of one command; its result is the exit status. What comes by
standard input is the work's own. Runs on POSIX too, where the tests are.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from fleet.device.windows.basics import FailedError, boot, is_file, say
from fleet.device.windows.guard import guarded
from fleet.device.windows.lease import answer, drop, free, take, who
from fleet.device.windows.store import (
    err,
    prune,
    reason,
    receive,
    stage,
    state,
    status,
    switch,
    switch_and_prune,
)

LATE = 124
STRANGE = 250  # the program ended with a number that ssh cannot carry, such as 0xC0000005
MARK = b"fleet-file\n"
PATH = "FLEET_PATH"  # of a release: goes before PATH, which only the device knows


def run(work: str, config: str, limit: str, feed: str, after: str, *argv: str) -> int:
    """See run.sh: a runner in a work folder of its own, ended with its children at the limit."""
    os.makedirs(work, 0o700, exist_ok=True)
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
    tool = os.path.normpath(argv[0])  # of slashes: the loader and FastRPC of Windows want their own
    words = [sys.executable if argv[0] == "python3" else tool, *argv[1:]]
    if os.name == "nt" and words[0].rstrip(" .").lower().endswith((".bat", ".cmd")):
        return err(f"{words[0]} is a batch file: cmd.exe would read its arguments", 126)
    source = work + "/prompt.txt" if feed == "prompt" else os.devnull
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
    if after == "clean":
        shutil.rmtree(work, ignore_errors=True)
    return LATE if late.is_set() else ended(code)


def expire(child: subprocess.Popen[bytes], late: threading.Event) -> None:
    """The limit: the program and all that it started."""
    late.set()
    if os.name == "nt":
        subprocess.run(
            ["taskkill", "/F", "/T", "/PID", str(child.pid)], capture_output=True, check=False
        )
    else:
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()


def ended(code: int) -> int:
    """A status that ssh carries; a crash is said in words, by the number that Windows gives it."""
    if code < 0 and os.name != "nt":
        return 128 - code
    if 0 <= code <= 255:
        return code
    return err(f"the program ended with status 0x{code & 0xFFFFFFFF:08X}", STRANGE)


def collect(work: str, *patterns: str) -> int:
    """See collect.sh."""
    out = sys.stdout.buffer
    out.write(MARK)
    found = 44
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(glob.escape(work), *pattern.split("/")))):
            if not is_file(path):
                continue
            name = os.path.relpath(path, work).replace(os.sep, "/")
            out.write(f"file {os.path.getsize(path)} {name}\n".encode())
            with open(path, "rb") as stream:
                shutil.copyfileobj(stream, out)
            out.write(b"\n")
            found = 0
    out.write(b"end\n")
    out.flush()
    shutil.rmtree(work, ignore_errors=True)
    return found


def show(path: str) -> int:
    """See show.sh."""
    out = sys.stdout.buffer
    out.write(MARK)
    with open(path, "rb") as stream:
        shutil.copyfileobj(stream, out)
    out.flush()
    return 0


def boot_id() -> int:
    """What is another one after each boot."""
    say(boot())
    return 0


WORKS: dict[str, Callable[..., int]] = {
    "boot_id": boot_id,
    "collect": collect,
    "prune": prune,
    "receive": receive,
    "run": run,
    "show": show,
    "stage": stage,
    "state": state,
    "status": status,
    "switch": switch,
    "switch_and_prune": switch_and_prune,
}
ANSWERS: dict[str, Callable[..., None]] = {
    "lease_drop": drop,
    "lease_free": free,
    "lease_take": take,
}


def work(name: str, *args: str) -> int:
    """One of the works, also inside of another."""
    if name == "lease_guard":
        return guarded(args, lambda then: main(*then))
    if name == "lease_who":
        answer(who)
        return work(*args) if args else 0
    if name in ANSWERS:
        return answer(ANSWERS[name], *args)
    if name not in WORKS:
        return err(f"{name} is not done on Windows (docs/platforms.md)", 70)
    return WORKS[name](*args)


def main(*words: str) -> int:
    """Do it."""
    name = words[0]
    try:
        return work(*words)
    except FailedError as error:
        return err(str(error), 74)
    except OSError as error:
        return err(f"{error.filename or name}: {reason(error)}", 74)
