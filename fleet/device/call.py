"""Tasks on a device by name: the program that executes each, and how fleet's Python code gets
there.

A device with a POSIX shell runs the scripts of `sh/` (`shell.py`); with Python, it also runs the
device worker of `store/`. On a Windows PC, `windows/board.py` executes the same
calls, and PowerShell collects the facts. Nothing is installed: the program text precedes the data
on standard input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from fleet.device.texts import python_text, text_of
from fleet.model.command import Call, Command
from fleet.model.facts import Facts

# Reads `name:bytes name:bytes`, then these texts, byte by byte: the following bytes are theirs.
# Each is a module except `words`, which are the arguments as JSON when they do not fit a command
# line.
LOADER = """import os,sys
def get(n):
 d=b""
 while len(d)<n:
  m=os.read(0,n-len(d))
  if not m:sys.exit(76)
  d+=m
 return d
w=b""
while w[-1:]!=b"\\n":w+=get(1)
words=sys.argv[1:]
for item in w.decode().split():
 name,n=item.split(":")
 text=get(int(n))
 if name=="words":
  import json
  words=json.loads(text)
 else:
  module=type(sys)(name)
  sys.modules[name]=module
  exec(compile(text,name,"exec"),module.__dict__)
sys.exit(module.main(*words))
"""
_POWERSHELL = {"probe": "probe.ps1"}
STAMP = ("store.stamp",)  # whether a release is as it was at the switch
_STORE = (*STAMP, "store.files", "store.stream", "store.recycle", "store.links_posix")
_WORK = ("store.blobs", "store.release", "store.worker")
WORKER = (*_STORE, "store.patch", *_WORK)
FSCK = (*_STORE, "store.fsck")  # a check of the whole store
_BOARD = (*_STORE, "store.links_windows", *_WORK, "store.lease")


@dataclass(frozen=True)
class OnWindows:
    """A PowerShell text with its arguments, or a program whose input begins with `head`."""

    argv: tuple[str, ...]
    script: str = ""
    head: bytes = b""


def on_windows(call: Call) -> OnWindows:
    """Return the program that executes a call on a Windows PC."""
    if call.name in _POWERSHELL:
        return OnWindows(call.args, script=text_of(_POWERSHELL[call.name]))
    argv = ("python3", "-I", "-S", "-u", "-c", LOADER)
    rare = ("store.fsck",) if "fsck" in (call.name, *call.args) else ()
    return OnWindows(argv, head=loaded((*_BOARD, *rare, "windows.board"), (call.name, *call.args)))


def loaded(names: tuple[str, ...], words: Sequence[str] | None = None) -> bytes:
    """Return the input of LOADER: modules, the last of which has `main`, and its arguments."""
    head, texts = _modules(names)
    if words is None:
        return head.encode() + b"\n" + texts
    arguments = json.dumps(words).encode("ascii")
    return f"{head} words:{len(arguments)}\n".encode() + texts + arguments


@cache
def _modules(names: tuple[str, ...]) -> tuple[str, bytes]:
    texts = {f"fleet.device.{name}": python_text(*name.split(".")) for name in names}
    head = " ".join(f"{name}:{len(text)}" for name, text in texts.items())
    return head, b"".join(texts.values())


OLDEST_PYTHON = (3, 7)  # os.preadv


def runs_worker(facts: Facts) -> bool:
    """Return True if the device has a Python that can run the worker and a POSIX shell."""
    tools, version = facts.tools, facts.tools.python3_version
    young = version is None or tuple(map(int, version.split(".")[:2])) >= OLDEST_PYTHON
    return bool(tools.python3) and tools.python3_whole and young and facts.posix


def worker_command(facts: Facts, *args: str) -> Command:
    """Return the program with its arguments; its standard input begins with `worker()`."""
    return Command((facts.tools.python3 or "python3", "-ISc", LOADER, *args))


def worker() -> bytes:
    """Return the text of the worker, with a line that has the lengths of its modules."""
    return loaded(WORKER)
