"""A link with a delay and a rate, on loopback: python slowlink.py PORT RTT_MS MBIT

Prints the port where it listens. Each direction has the rate for all connections together, and
holds back a reader that is far ahead, as the queue of a real link does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

CHUNK = 16384
AHEAD = 0.02  # seconds of queue before the link


class Way:
    """One direction. `rate` in bytes a second, `delay` in seconds."""

    def __init__(self, rate: float, delay: float) -> None:
        self.rate, self.delay, self.free_at = rate, delay, 0.0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.create_task(self._arrive(queue, writer))
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                self.free_at = max(clock(), self.free_at) + len(chunk) / self.rate
                queue.put_nowait((self.free_at + self.delay, chunk))
                await asyncio.sleep(max(0.0, self.free_at - clock() - AHEAD))
        queue.put_nowait((clock() + self.delay, b""))
        await arriving

    @staticmethod
    async def _arrive(
        queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        clock = asyncio.get_running_loop().time
        with contextlib.suppress(OSError):
            while True:
                at, chunk = await queue.get()
                await asyncio.sleep(max(0.0, at - clock()))
                if not chunk:
                    writer.write_eof()
                    return
                writer.write(chunk)
                await writer.drain()


async def serve(port: int, rtt: float, rate: float) -> None:
    """Until the process is ended."""
    there, back = Way(rate, rtt / 2), Way(rate, rtt / 2)

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK)
        for one in (writer, far_writer):
            one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.gather(there.carry(reader, far_writer), back.carry(far_reader, writer))
        finally:
            writer.close()
            far_writer.close()

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    server = await asyncio.start_server(joined, sock=listener, limit=CHUNK)
    print(listener.getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]) / 1000, float(sys.argv[3]) * 125_000))
