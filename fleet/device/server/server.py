"""The server: it accepts requests, queues jobs for the one session, and sends answers and streams.

Exit status: 0 stopped, 10 a configuration that cannot work (not restarted), 11 no session, 12 the
port is in use, 70 the session hangs or is broken (to be restarted).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections import Counter
from typing import Any, Dict, Optional, Set, Tuple

from fleet.device.server.answers import Answers
from fleet.device.server.api import Reader
from fleet.device.server.chat import TemplateError
from fleet.device.server.openapi import document
from fleet.device.server.wire import HEADER_BYTES, Head, HttpError, read_body, read_head, send_json
from fleet.device.server.work import BackendError, Full, Job, Worker

_SOCK_DIAG = 4  # netlink family NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY, of linux/sock_diag.h
_REQUEST = 1  # NLM_F_REQUEST
_TCP = 6
_ESTABLISHED = 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, number, port
_ENDS = struct.Struct("!HH16s16s")  # of inet_diag_sockid: both ports and addresses
_ASKED = struct.Struct("=BBBxI")  # inet_diag_req_v2 before it: family, protocol, more, states
_REST = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, no cookie
_FOUND = struct.Struct("=BBBB")  # inet_diag_msg: family, state, timer, retransmissions
_UID_AT = _HEADER.size + _FOUND.size + _ENDS.size + len(_REST) + 12  # after three counters


class Peers:
    """A lookup that distinguishes connections by their origin."""

    def __init__(self) -> None:
        self._link = None  # type: Optional[socket.socket]
        if sys.platform == "linux":
            try:
                self._link = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG)
                self._link.settimeout(1.0)
            except OSError:  # SELinux of a phone, or a kernel without it
                self._link = None

    def close(self) -> None:
        """Close the netlink socket."""
        if self._link is not None:
            self._link.close()

    def origin(self, peer: Any, own: Any) -> str:
        """Return `uid N` for a program on this board, `address A` for another machine, or
        `unknown`.
        """
        if not peer or not own:
            return "unknown"
        if peer[0] != own[0]:
            return "address %s" % peer[0]
        try:
            uid = self._uid(peer, own)
        except (OSError, struct.error):
            uid = None
        return "unknown" if uid is None else "uid %d" % uid

    def _uid(self, peer: Any, own: Any) -> "Optional[int]":
        if self._link is None:
            return None
        family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
        ends = (socket.inet_pton(family, end[0]) for end in (peer, own))
        body = _ASKED.pack(family, _TCP, 0, 1 << _ESTABLISHED)
        body += _ENDS.pack(peer[1], own[1], *ends) + _REST
        self._link.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        reply = self._link.recv(4096)
        if _HEADER.unpack_from(reply)[1] != _BY_FAMILY:  # an error: it is gone
            return None
        if _FOUND.unpack_from(reply, _HEADER.size)[1] != _ESTABLISHED:
            return None
        return int(struct.unpack_from("=I", reply, _UID_AT)[0])


BAD, NO_SESSION, NO_PORT, BROKEN = 10, 11, 12, 70
CONNECTIONS = 512  # connections that have shown the token
# more connections without the token; beyond it, the oldest of the largest origin is closed
STRANGERS = 128
ABORT_SECONDS = 20.0  # after the abort of a query, time until the session counts as hung
LOG_BYTES = 4 << 20
_TOKEN_CHARS = 16


class Server:
    """The service of one model on one port."""

    def __init__(self, folder: str, config: "Dict[str, Any]", backend: Any) -> None:
        self.config, self._folder = config, folder
        self.worker = Worker(backend, config["queue"], self._no_session)
        reader = Reader(config, backend.sampling, greedy=backend.greedy)
        self.answers = Answers(config, self, reader, backend.kind)
        self.began = time.monotonic()
        self.stopping = False
        self.status = 0
        self._known: "Set[asyncio.StreamWriter]" = set()
        self._strangers: "Dict[asyncio.StreamWriter, str]" = {}  # with their origin
        self._peers = Peers()
        self._token: "Tuple[Any, bytes]" = (None, b"")
        self._over = asyncio.Event()
        self._document = document(config, backend.kind)

    def submit(self, job: Job) -> None:
        """Queue a job. Raises HttpError: 429 full, 503 stopping or loading."""
        if self.stopping or not self.worker.ready:
            code = "stopping" if self.stopping else "loading"
            raise HttpError(503, code, "the service is %s" % code, headers={"Retry-After": "5"})
        try:
            self.worker.submit(job)
        except Full:
            raise HttpError(
                429, "queue_full", "the queue is full", headers={"Retry-After": "2"}
            ) from None

    def health(self) -> "Dict[str, Any]":
        """Return the content of /health."""
        config, worker = self.config, self.worker
        word = "stopping" if self.stopping else "ready" if worker.ready else "loading"
        return {
            "status": word,
            "ready": word == "ready",
            **{key: config[key] for key in ("name", "release", "build", "backend", "emulated")},
            "paths": sorted(path for path in self._document["paths"] if path not in _OWN_PATHS),
            **worker.about,
            "queue": worker.length,
            "running": worker.current is not None,
            "served": dict(worker.served),
            "uptime_s": round(time.monotonic() - self.began, 1),
            "rss_bytes": _rss(),
            "pid": os.getpid(),
        }

    def _check_token(self, head: Head) -> None:
        kind, _, given = head.headers.get("authorization", "").partition(" ")
        wanted = self._wanted()
        same = hmac.compare_digest(given.strip().encode("latin-1"), wanted)
        if kind.lower() != "bearer" or not same:
            raise HttpError(
                401,
                "unauthorized",
                "the token is missing or wrong; send Authorization: Bearer TOKEN",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _wanted(self) -> bytes:
        """Return the token; read a changed file again. Raises HttpError 503."""
        path = os.path.join(self._folder, "token")
        try:
            status = os.stat(path)
            mark = (status.st_mtime_ns, status.st_ino, status.st_size)
            if mark != self._token[0]:
                self._token = (mark, read_token(path))
        except (OSError, ValueError) as error:
            sys.stderr.write("token: %s\n" % error)
            raise HttpError(503, "no_token", "the token of the service cannot be read") from None
        return self._token[1]

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve all requests of one connection."""
        ends = (writer.get_extra_info(name) for name in ("peername", "sockname"))
        self._strangers[writer] = self._peers.origin(*ends)
        if len(self._strangers) > STRANGERS:
            self._close_a_stranger()
        first = True
        try:
            while await self._request(reader, writer, first=first):
                first = False
        except (ConnectionError, asyncio.CancelledError, OSError):
            pass
        finally:
            self._strangers.pop(writer, None)
            self._known.discard(writer)
            writer.close()

    def _close_a_stranger(self) -> None:
        """Close the oldest connection of the origin with the most connections.

        Another user of the board who opens many connections therefore closes only their own.
        """
        counts = Counter(self._strangers.values())
        most = max(counts, key=lambda origin: counts[origin])
        oldest = next(link for link, origin in self._strangers.items() if origin == most)
        del self._strangers[oldest]
        oldest.transport.abort()

    def _known_now(self, writer: asyncio.StreamWriter) -> None:
        """Record that this connection has shown the token. Raises HttpError 503 for too many."""
        if writer not in self._known and len(self._known) >= CONNECTIONS:
            raise HttpError(503, "too_many_connections", "too many connections")
        self._strangers.pop(writer, None)
        self._known.add(writer)

    async def _request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, first: bool
    ) -> bool:
        """Serve a request (the `first` has less time); return True if the connection stays open."""
        bare = False
        try:
            head = await read_head(reader, first=first)
            if head is None:
                return False
            bare = head.method == "HEAD"
        except HttpError as error:
            await self._refused(writer, error, keep=False, bare=bare)
            return False
        entered = False
        try:
            most = self.answers.admit(head)
            if head.path not in OPEN_PATHS:
                self._check_token(head)
                self._known_now(writer)
            raw = await read_body(reader, writer, head, most)
            entered = True
            return await self._answer(reader, writer, head, raw)
        except HttpError as error:
            keep = head.keep and (entered or not head.length)
            await self._refused(writer, error, keep=keep, bare=bare)
            return keep

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head, raw: bytes
    ) -> bool:
        keep = head.keep and not self.stopping
        if head.path == "/health":
            health = self.health()
            await send_json(writer, 200 if health["ready"] else 503, health, keep=keep)
        elif head.path == "/openapi.json":
            await send_json(writer, 200, self._document, keep=keep)
        else:
            return await self.answers.work(reader, writer, head, raw, keep=keep)
        return keep

    async def _refused(
        self, writer: asyncio.StreamWriter, error: HttpError, *, keep: bool, bare: bool
    ) -> None:
        await send_json(
            writer, error.status, error.as_dict(), headers=error.headers, keep=keep, bare=bare
        )

    async def run(self) -> int:
        """Serve until the end; return the exit status."""
        loop = asyncio.get_running_loop()
        try:
            server = await asyncio.start_server(
                self.connection,
                self.config["bind"],
                self.config["port"],
                limit=HEADER_BYTES,
                backlog=128,
            )
        except OSError as error:
            sys.stderr.write("port %s: %s\n" % (self.config["port"], error))
            return NO_PORT
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        self._loop = loop
        self.worker.start()
        watch = loop.create_task(self._watch())
        await self._over.wait()
        watch.cancel()
        server.close()
        self._peers.close()
        return self.status

    def stop(self) -> None:
        """Finish the running job, refuse the others, and end."""
        if self.stopping:
            return
        self.stopping = True
        sys.stderr.write("stopping\n")
        for job in self.worker.dismiss():
            job.events.put_nowait(
                (
                    "error",
                    BackendError(
                        "stopping",
                        "the service is stopping; send the request again when it has started again",
                        503,
                    ),
                )
            )
        self._loop.create_task(self._finish())

    async def _finish(self) -> None:
        end = time.monotonic() + self.config["stop_seconds"]
        while not self.worker.idle and time.monotonic() < end:
            await asyncio.sleep(0.05)
        if self.worker.current is not None:
            self.worker.cancel(self.worker.current)
        while not self.worker.idle and time.monotonic() < end + 2:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)  # time for the last answers
        if self.worker.idle:
            self.worker.close(5.0)
        self._over.set()

    def _no_session(self, why: str) -> None:
        sys.stderr.write("no session: %s\n" % why)
        self.status = NO_SESSION
        self._loop.call_soon_threadsafe(self._over.set)

    async def _watch(self) -> None:
        """Restart after a session that does not abort, and limit the size of the log."""
        while True:
            await asyncio.sleep(1.0)
            job = self.worker.current
            if job and job.cancelled and time.monotonic() - job.cancelled > ABORT_SECONDS:
                sys.stderr.write("the NPU session hangs; the service restarts\n")
                leave(BROKEN)
            if self.worker.broken:
                sys.stderr.write("the NPU session is broken; the service restarts\n")
                await asyncio.sleep(0.2)
                leave(BROKEN)
            _trim_log()


OPEN_PATHS = ("/health", "/openapi.json")
_OWN_PATHS = (*OPEN_PATHS, "/v1/models")


def read_token(path: str) -> bytes:
    """Return the token of a file that no other user can read. Raises OSError or ValueError."""
    with open(path, "rb") as stream:
        if os.fstat(stream.fileno()).st_mode & 0o077:
            raise ValueError("other users can read %s: chmod 600 %s" % (path, path))
        token = stream.read(4096).strip()
    if len(token) < _TOKEN_CHARS:
        raise ValueError("%s must contain a token of %d characters or more" % (path, _TOKEN_CHARS))
    return token


def _rss() -> "Optional[int]":
    """Return the memory of this process in bytes, None if the kernel does not report it."""
    try:
        with open("/proc/self/statm") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _trim_log() -> None:
    """Move a log file that is too long to `.1`. It is open for appending."""
    try:
        if os.fstat(2).st_size < LOG_BYTES:
            return
        path = os.readlink("/proc/self/fd/2")
        if os.path.lexists(path + ".1"):
            os.unlink(path + ".1")
        with open(path, "rb") as old, open(path + ".1", "xb") as new:
            new.write(old.read())
        os.ftruncate(2, 0)
    except OSError:
        return


def backend_for(config: "Dict[str, Any]") -> Any:
    """Return the backend named in the configuration. Raises BackendError for another name."""
    name = config["backend"]
    if name == "genie":
        from fleet.device.server.genie import GenieBackend  # noqa: PLC0415

        return GenieBackend(config)
    if name == "genai":
        from fleet.device.server.genai import GenaiBackend  # noqa: PLC0415

        return GenaiBackend(config)
    if name == "geniex":
        from fleet.device.server.geniex import GeniexBackend  # noqa: PLC0415

        return GeniexBackend(config)
    if name == "ort":
        from fleet.device.server.ort import OrtBackend  # noqa: PLC0415

        return OrtBackend(config)
    raise BackendError("no_backend", "the backend %s does not exist" % name)


def leave(status: int) -> None:
    """Exit without the destructors of C libraries, because libGenie's crash."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(folder: str) -> None:
    """Read the configuration, serve, exit."""
    threading.current_thread().name = "loop"
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
            config = {**json.load(stream), "folder": folder}
        read_token(os.path.join(folder, "token"))
        backend = backend_for(config)
        Reader(config)  # detects an invalid chat template
    except (OSError, ValueError, KeyError, BackendError, TemplateError) as error:
        sys.stderr.write("cannot start: %s\n" % error)
        leave(BAD)

    async def serve() -> int:
        return await Server(folder, config, backend).run()

    leave(asyncio.run(serve()))
