"""The services `shell:`, `shell,v2:` and `exec:`: a real shell of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
from collections.abc import Mapping, Sequence

from fleet.lab.adbd.wire import AdbStream

_FRAME = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)


async def serve_shell(
    stream: AdbStream, command: str, *, framed: bool, argv: Sequence[str], env: Mapping[str, str]
) -> None:
    """Run `command` with the shell `argv`; `framed` is the shell protocol (v2)."""
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
