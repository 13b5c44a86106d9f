"""`fleet` as a process of its own, forked from one that has imported it already.

A start of Python with fleet's modules costs 0.2 to 0.7 s of CPU, and the tests start `fleet` many
hundred times. Each call here is still a new process with its own arguments, environment, folder and
umask, which ends as a process of Python ends. What is measured of the start itself, and what must
be killed, is started with `python -m fleet` (tests/cli/test_startup.py).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_START_SECONDS = 120.0
_lock = threading.Lock()


def fleet(
    *argv: object,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdin: str = "",
    timeout: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Run the command and return its status and texts. Raises subprocess.TimeoutExpired."""
    words = [str(word) for word in argv]
    request = {
        "argv": words,
        "cwd": str(cwd or Path.cwd()),
        "env": dict(os.environ if env is None else env),
        "umask": _umask(),
    }
    with contextlib.ExitStack() as stack:
        said = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        said[0].write(stdin.encode())
        said[0].seek(0)
        near, far = map(stack.enter_context, socket.socketpair())
        near.settimeout(timeout)
        with _lock:
            files = [far.fileno(), *(one.fileno() for one in said)]
            socket.send_fds(_server(), [b"?"], files)
        far.close()
        near.sendall(json.dumps(request).encode() + b"\n")
        answers = near.makefile("r")
        pid = 0
        try:
            pid = int(answers.readline())
            status = int(answers.readline())
        except TimeoutError as error:
            if pid:
                os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(words, timeout) from error
        texts = []
        for one in said[1:]:
            one.seek(0)
            texts.append(one.read().decode())
    return subprocess.CompletedProcess(words, status, *texts)


def _umask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


@cache
def _server() -> socket.socket:
    """Start the process that has imported fleet; it ends with this one."""
    near, far = socket.socketpair()
    code = f"from tests.warm import serve; serve({far.fileno()})"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], pass_fds=(far.fileno(),), env=env, cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    far.close()
    near.settimeout(_START_SECONDS)
    atexit.register(_end, near, process)
    return near


def _end(near: socket.socket, process: subprocess.Popen[bytes]) -> None:
    near.close()
    process.wait(_START_SECONDS)


def serve(number: int) -> None:
    """Fork a process for each request, until the tests end."""
    _import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    requests = socket.socket(fileno=number)
    while True:
        word, files, _, _ = socket.recv_fds(requests, 1, 4)
        if not word:
            os._exit(0)
        if not os.fork():
            requests.close()
            break
        for file in files:
            os.close(file)
    _keep(files)
    from fleet.cli.entry import main

    main()


def _keep(files: list[int]) -> None:
    """Fork once more: wait for the process and tell its status; in that process, return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    link = socket.socket(fileno=files[0])
    request = json.loads(link.makefile("r").readline())
    if pid := os.fork():
        with contextlib.suppress(BrokenPipeError):  # nobody waits any more
            link.sendall(f"{pid}\n".encode())
            _, status = os.waitpid(pid, 0)
            link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    link.close()
    for number, file in enumerate(files[1:]):
        os.dup2(file, number)
        os.close(file)
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.modules["__main__"].__package__ = "fleet"  # usage lines begin `python -m fleet`
    sys.argv[:] = [str(ROOT / "fleet" / "__main__.py"), *request["argv"]]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        given = getattr(sys, name)
        mode = "r" if not number else "w"
        stream = os.fdopen(number, mode, encoding=given.encoding, errors=given.errors)
        setattr(sys, name, stream)


def _import_all() -> None:
    from fleet.cli import main
    from fleet.transport.early import import_ssh
    from fleet.triage.knowledge import knowledge

    import_ssh()
    for module in {*main.MODULES.values()} - {""}:
        importlib.import_module(f"fleet.cli.{module}")
    knowledge()
    gc.freeze()
