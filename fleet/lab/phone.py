"""A phone made of namespaces: real adbd over an Android-like root, as the user shell."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
import time
from pathlib import Path

from fleet.lab.androidroot import ADBD
from fleet.lab.folder import Board, LabFolder
from fleet.lab.namespace import NamespaceBoard, boot_clock, boot_script, unshare
from fleet.lab.phoneprofiles import phone_profile
from fleet.lab.process import start_logged
from fleet.model.errors import LabError

ADBD_PORT = 5555
READY_SECONDS = 60.0
_PIPE_BYTES = 1 << 20  # one packet of adb
_NET = 0x40000000  # CLONE_NEWNET


class NamespacePhone(NamespaceBoard):
    """Starts, enters and ends one phone; connections are passed on to its adbd."""

    def __init__(self, board: Board, folder: LabFolder, base: Path) -> None:
        super().__init__(board, folder, base)
        self._links: list[socket.socket] = []

    def start(self) -> None:
        """Begin to boot; `wait` for the end of it."""
        script = boot_script("phone.sh")
        nodes = " ".join(phone_profile(self.board.profile).nodes)
        words = (str(self._dir), str(self._base), self.board.name, nodes, ADBD)
        argv = [*unshare(), *boot_clock(), "/bin/bash", "-c", script, "phone", *words]
        self._init = start_logged(argv, self._log)

    def wait(self) -> None:
        """Until adbd listens. Raises LabError."""
        super().wait()
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            try:
                self._dial().close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        raise LabError(f"{self.board.name}: adbd does not listen", hint="fleet lab reset NAME")

    def accept(self) -> None:
        """One connection: bytes go to and from adbd until either side ends."""
        if self._listener is None:
            return
        near, _ = self._listener.accept()
        try:
            far = self._dial()
        except OSError:
            near.close()
            return
        self._links = [link for link in self._links if link.fileno() >= 0] + [near, far]
        threading.Thread(target=_join, args=(near, far), daemon=True).start()

    def _dial(self) -> socket.socket:
        """A connection made inside the phone's network namespace, used outside of it."""
        if not self.board.pid:
            raise ConnectionRefusedError("the phone is off")
        link = _inside(self.board.pid)
        try:
            link.settimeout(5)
            link.connect(("127.0.0.1", ADBD_PORT))
            link.settimeout(None)
        except OSError:
            link.close()
            raise
        return link

    def power_off(self) -> None:
        """SIGKILL of pid 1, and the end of every connection."""
        super().power_off()
        links, self._links = self._links, []
        for link in links:
            _end(link)


def _inside(pid: int) -> socket.socket:
    """A socket of the network namespace of a process; this thread comes back at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net", "rb") as own, open(f"/proc/{pid}/ns/net", "rb") as there:  # noqa: PTH123
        if libc.setns(there.fileno(), _NET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            return socket.socket()
        finally:
            if libc.setns(own.fileno(), _NET):
                os._exit(70)  # in a foreign network nothing of ours may go on


def _join(near: socket.socket, far: socket.socket) -> None:
    """Pass bytes both ways until one side ends; only then are the descriptors given back."""
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_pump, args=(far, near), daemon=True)
    back.start()
    _pump(near, far)
    back.join()
    near.close()
    far.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """Move bytes through a pipe, without a copy into this process."""
    out, into = os.pipe()
    try:
        while count := os.splice(source.fileno(), into, _PIPE_BYTES):
            while count:
                count -= os.splice(out, sink.fileno(), count)
    except (OSError, ValueError):
        pass
    finally:
        os.close(out)
        os.close(into)
        _end(source)
        _end(sink)


def _end(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
