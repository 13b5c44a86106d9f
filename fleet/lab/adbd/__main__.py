"""`python -m fleet.lab.adbd`: one emulated daemon on loopback."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
from pathlib import Path

from fleet.lab.adbd.shell import serve_shell
from fleet.lab.adbd.sync import Sync
from fleet.lab.adbd.wire import AdbStream, DaemonConnection, Manner

FEATURES = "shell_v2,cmd,stat_v2,ls_v2,fixed_push_mkdir"
OLD_FEATURES = "cmd"


class Adbd:
    """Serves every connection with the same manner, root and shell."""

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
        """One connection."""
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await DaemonConnection(reader, writer, self._manner, self._service).serve()


async def main() -> None:
    """Serve until the process is ended."""
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
