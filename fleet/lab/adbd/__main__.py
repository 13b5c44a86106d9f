"""`python -m fleet.lab.adbd`: one emulated daemon on loopback."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.lab.adbd.sync import Sync
from fleet.lab.adbd.wire import AdbStream, DaemonConnection, Manner

# The services `shell:`, `shell,v2:` and `exec:`: a real shell of this machine.

_FRAME = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)


async def serve_shell(
    stream: AdbStream, command: str, *, framed: bool, argv: Sequence[str], env: Mapping[str, str]
) -> None:
    """Run `command` with the shell `argv`. `framed` selects the shell protocol (v2)."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        *(("-c", command) if command else ()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE if framed else asyncio.subprocess.STDOUT,
        env=dict(env),
        cwd=env.get("HOME", "/"),
        start_new_session=True,
    )
    feeding = asyncio.create_task(_feed(stream, process, framed=framed))
    try:
        async with asyncio.TaskGroup() as group:
            for source, number in ((process.stdout, _STDOUT), (process.stderr, _STDERR)):
                if source is not None:
                    group.create_task(_pass_on(source, stream, number if framed else None))
        status = await process.wait()
        if framed:
            code = status & 255 if status >= 0 else 128 - status
            await stream.write(_FRAME.pack(_EXIT, 1) + bytes([code]))
    except* (EOFError, ConnectionError):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGHUP)
    finally:
        feeding.cancel()


async def _pass_on(source: asyncio.StreamReader, stream: AdbStream, number: int | None) -> None:
    while chunk := await source.read(1 << 16):
        head = b"" if number is None else _FRAME.pack(number, len(chunk))
        await stream.write(head + chunk)


async def _feed(stream: AdbStream, process: asyncio.subprocess.Process, *, framed: bool) -> None:
    sink = process.stdin
    if sink is None:
        return
    try:
        while True:
            if framed:
                kind, size = _FRAME.unpack(await stream.exactly(_FRAME.size))
                data = await stream.exactly(size)
                if kind == _CLOSE_STDIN:
                    break
                if kind != _STDIN:
                    continue
            else:
                data = await stream.read()
            with contextlib.suppress(ConnectionError):
                sink.write(data)
                await sink.drain()
    except (EOFError, ConnectionError):
        pass
    finally:
        sink.close()


FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir"
OLD_FEATURES = "cmd"


class Adbd:
    """A daemon that serves each connection with the same banner, root folder and shell."""

    def __init__(self, options: argparse.Namespace) -> None:
        features = OLD_FEATURES if options.old else FEATURES
        self._old = options.old
        self._manner = Manner(f"{options.state}::features={features}", options.auth)
        self._root = Path(options.root)
        shell = shutil.which("mksh") or "/bin/sh"
        self._argv = (shell,)
        self._env = dict(os.environ)

    async def _service(self, stream: AdbStream, name: str) -> None:
        kind, _, rest = name.partition(":")
        words = kind.split(",")
        if kind == "sync":
            await stream.accept()
            await Sync(stream, self._root).serve()
        elif words[0] in {"shell", "exec"} and not (self._old and "v2" in words):
            await stream.accept()
            await serve_shell(stream, rest, framed="v2" in words, argv=self._argv, env=self._env)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of an adb server."""
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await DaemonConnection(reader, writer, self._manner, self._service).serve()


async def main() -> None:
    """Serve until the process is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--auth", default="none", choices=("none", "key", "never"))
    parser.add_argument("--state", default="device", choices=("device", "recovery", "sideload"))
    parser.add_argument("--old", action="store_true", help="an adbd without shell_v2")
    options = parser.parse_args()
    daemon = Adbd(options)
    server = await asyncio.start_server(
        daemon.connected, "127.0.0.1", options.port, limit=4 << 20, reuse_address=True
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
