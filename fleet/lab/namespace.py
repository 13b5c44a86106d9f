"""A board made of namespaces over the shared userland, with one sshd process per connection."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from functools import cache
from importlib.resources import files
from pathlib import Path

from fleet.lab.folder import Board, LabFolder
from fleet.lab.process import last_words, port_in_use, start_logged
from fleet.lab.profiles import profile
from fleet.model.errors import LabError

# Debian signs return addresses. The default CPU of qemu does that in software, which makes the
# start of Python four times as long. This CPU does not have such instructions.
CPU = "cortex-a76"
READY_SECONDS = 60.0  # 80 ms when idle; 200 boots at once on two cores need seconds


@cache
def has_clocks() -> bool:
    """Return True if a board can count its uptime from its own boot: Linux 5.6, util-linux 2.36."""
    if not Path("/proc/self/ns/time").exists() or shutil.which("unshare") is None:
        return False
    help_text = subprocess.run(["unshare", "--help"], capture_output=True, check=False).stdout
    return b"--boottime" in help_text


# Capabilities that root of a board does not get, to protect the workstation's clock and kernel.
_WITHHELD = (
    "sys_time",
    "sys_module",
    "sys_rawio",
    "sys_boot",
    "sys_pacct",
    "mac_admin",
    "mac_override",
)


def confined() -> tuple[str, ...]:
    """Return the command that starts a program without capabilities over the workstation.

    It goes before `nsenter`, and after `unshare`, which sets the clock of a board.
    """
    bounds = ",".join(f"-{name}" for name in _WITHHELD)
    return ("setpriv", "--bounding-set", bounds, "--inh-caps", "-all")


def own_env(kind: str) -> tuple[str, ...]:
    """Return the environment variables of all programs of a board, as NAME=VALUE."""
    return (f"QEMU_CPU={CPU}",) if kind == "arm64" else ()


def enter(kind: str = "namespace") -> tuple[str, ...]:
    """Return the options of nsenter for all namespaces that a board has."""
    own = (*(("-T",) if has_clocks() else ()), *(("-U",) if kind == "arm64" else ()))
    return ("-m", "-u", "-i", "-n", "-p", *own, "-r", "-w")


def is_apart(pid: int) -> bool:
    """Return True if a process has its own /run, as a booted board does.

    A command that enters any other process acts on the workstation itself.
    """
    try:
        return not Path(f"/proc/{pid}/root/run").samefile("/run")
    except OSError:
        return False


SSHD = (
    *("/usr/sbin/sshd", "-i", "-e"),
    *("-o", "UsePAM=no", "-o", "UseDNS=no", "-o", "PidFile=none"),
    *("-o", "PasswordAuthentication=yes"),
    *("-o", "HostKey=/etc/ssh/ssh_host_ed25519_key", "-o", "MaxSessions=100"),
    *("-o", "PrintMotd=no", "-o", "ClientAliveInterval=0"),
)
UNSHARE = (
    *("unshare", "--mount", "--pid", "--uts", "--ipc", "--net"),
    *("--fork", "--kill-child", "--propagation", "private"),
)


def boot_clock() -> list[str]:
    """Return the arguments of unshare with which the uptime of a board begins at 0."""
    if not has_clocks():
        return []
    return ["--time", "--boottime", f"-{int(time.clock_gettime(time.CLOCK_BOOTTIME))}"]


def boot_script(*names: str) -> str:
    """Return the script that boots a board or phone: ground.sh, then the named parts."""
    return "".join(map(shell, ("ground.sh", *names)))


def shell(name: str) -> str:
    """Return the text of a script of the lab."""
    return (files("fleet.lab") / name).read_text("utf-8")


def can_unshare() -> str:
    """Return why namespace boards cannot be made here, "" if they can."""
    if os.geteuid() != 0:
        return "they need root"
    done = subprocess.run(
        [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return done.stderr.decode("utf-8", "replace").strip() if done.returncode else ""


class NamespaceBoard:
    """A namespace board that can be started, entered and stopped."""

    option = "--port"

    def __init__(self, board: Board, folder: LabFolder, base: Path) -> None:
        self.board = board
        self._dir = folder.board(board.name)
        self._log = self._dir / "board.log"
        self._base = base
        self._init: subprocess.Popen[bytes] | None = None
        self._listener: socket.socket | None = None
        self._sessions: list[subprocess.Popen[bytes]] = []

    def listen(self) -> socket.socket:
        """Open the port of the board. Raises LabError if the port is in use."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", self.board.port))
        except OSError as error:
            listener.close()
            raise port_in_use(self.board.port, self.option) from error
        listener.listen(64)
        self.board.port = int(listener.getsockname()[1])
        self._listener = listener
        return listener

    def start(self) -> None:
        """Begin to boot. `wait` waits for the end of the boot."""
        self._begin(boot_script("board.sh", "pivot.sh"), "")

    def _begin(self, script: str, *more: str) -> None:
        kind = profile(self.board.profile)
        argv = [*confined(), "/bin/bash", "-c", script, "board", str(self._dir), str(self._base)]
        argv += [self.board.name, " ".join(kind.nodes), *kind.node.split(), kind.user, *more]
        self._init = start_logged([*UNSHARE, *boot_clock(), *argv], self._log)

    def wait(self) -> None:
        """Wait until the board is up. Raises LabError with the last lines of the boot log."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end and self._init and self._init.poll() is None:
            pid = _child(self._init.pid)
            if pid and is_apart(pid) and Path(f"/proc/{pid}/root/run/lab-ready").exists():
                self.board.pid = pid
                upper = Path(f"/proc/{pid}/root/run/lab-upper").read_text("utf-8")
                self.board.upper = upper.strip()
                return
            time.sleep(0.005)
        raise LabError(
            f"{self.board.name} does not boot: {last_words(self._log) or 'too slow'}",
            hint="fleet lab up --count 1",
        )

    def accept(self) -> None:
        """Accept one connection and hand its socket to a new sshd of the board."""
        if self._listener is None:
            return
        peer, _ = self._listener.accept()
        with peer:
            if not self.board.pid:
                return
            env = own_env(self.board.kind)
            session = subprocess.Popen(
                [
                    *("env", *env, *confined(), "nsenter"),
                    "-t",
                    str(self.board.pid),
                    *enter(self.board.kind),
                    *SSHD,
                    *("-o", self._root_login, *(f"-oSetEnv={pair}" for pair in env)),
                ],
                stdin=peer.fileno(),
                stdout=peer.fileno(),
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._sessions = [session for session in self._sessions if session.poll() is None]
        self._sessions.append(session)

    @property
    def _root_login(self) -> str:
        word = "prohibit-password" if self.board.user == "root" else "no"
        return f"PermitRootLogin={word}"

    @property
    def wants_reboot(self) -> bool:
        """True if `reboot` was called on the board."""
        flag = Path(f"/proc/{self.board.pid}/root/run/lab-reboot")
        return bool(self.board.pid) and flag.exists()

    def power_off(self) -> None:
        """Kill pid 1 with SIGKILL. All processes of the board end with it, as at a power cut."""
        if self._init is not None:
            if self.board.pid and self._init.poll() is None:
                os.kill(self.board.pid, signal.SIGKILL)
            elif self._init.poll() is None:
                self._init.kill()
            self._init.wait()
        self.board.pid = 0
        for session in self._sessions:
            if session.poll() is None:
                session.kill()
            session.wait()
        self._sessions = []

    def wipe(self) -> None:
        """Delete everything that was written on the board."""
        shutil.rmtree(self._dir / "rw", ignore_errors=True)


def _child(pid: int) -> int | None:
    try:
        kids = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    except OSError:
        return None
    return int(kids[0]) if kids else None
