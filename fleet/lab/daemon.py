"""The process that owns the boards of a lab. `Lab.up` starts it, `Lab.close` ends it."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import os
import pwd
import resource
import selectors
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleet.lab.adbserver import LabAdbServer
from fleet.lab.androidroot import ADBD
from fleet.lab.arm64 import Arm64Board
from fleet.lab.folder import PHONES, Board, LabFolder, start_ticks
from fleet.lab.kernel import KernelBoard
from fleet.lab.kinds import ground, phone_ground
from fleet.lab.linked import LinkedBoard
from fleet.lab.loopback import EmulatedPhone, LoopbackBoard
from fleet.lab.namespace import UNSHARE, NamespaceBoard, boot_clock, boot_script, confined
from fleet.lab.process import start_logged
from fleet.lab.profiles import phone_profile, profile
from fleet.lab.tools import sshd, without_penalties
from fleet.model.deadline import utc_text
from fleet.model.errors import LabError
from fleet.model.inventory import ADB

# A board of an ordinary user: a real sshd on loopback that logs in only this user. It shares the
# host's userland. The files that identify the board are under its own sysroot; the facts probe
# reads them there because this sshd sets FLEET_SYSROOT.


class UserBoard(LoopbackBoard):
    """A board of an ordinary user that can be started and stopped."""

    what = "sshd"
    greeting = b"SSH-"

    def start(self) -> None:
        """Lay out the sysroot and start sshd."""
        self._lay_out(profile(self.board.profile), 0o660)
        config = self._dir / "sshd_config"
        settings = {
            "ListenAddress": f"127.0.0.1:{self.board.port}",
            "HostKey": f'"{self._dir}/ssh_host_ed25519_key"',
            "AuthorizedKeysFile": f'"{self._dir}/authorized_keys"',
            "PidFile": "none",
            "UsePAM": "no",
            "UseDNS": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "yes",
            "PrintMotd": "no",
            "MaxSessions": "100",
            "MaxStartups": "100",
            "Subsystem": "sftp internal-sftp",
            **without_penalties(sshd()),
            "SetEnv": f'"FLEET_SYSROOT={self.sysroot}" "FLEET_BOARD_HOME={self.board.home}" '
            f'"FLEET_LEASE_DIR={self._dir / "leases"}"',
        }
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()), "utf-8")
        argv = [sshd(), "-D", "-e", "-f", str(config)]
        self._process = start_logged(argv, self._log, {**os.environ, **self._as_root()})

    def _as_root(self) -> dict[str, str]:
        """Return variables that give root's sshd its user `sshd` if this computer has none."""
        if os.geteuid() != 0:
            return {}
        Path("/run/sshd").mkdir(exist_ok=True)
        with contextlib.suppress(KeyError):
            pwd.getpwnam("sshd")
            return {}
        users = self._dir / "passwd"
        own = "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"
        users.write_text(Path("/etc/passwd").read_text("utf-8") + own, "utf-8")
        return {
            "FLEET_NSS_WRAPPER": "1",
            "NSS_WRAPPER_PASSWD": str(users),
            "NSS_WRAPPER_GROUP": "/etc/group",
        }


# A phone made of namespaces: the real adbd over an Android-like root, as the user shell.

ADBD_PORT = 5555


class NamespacePhone(LinkedBoard):
    """A namespace phone that can be started, entered and stopped."""

    option = "--phone-port"
    address = ("127.0.0.1", ADBD_PORT)

    def start(self) -> None:
        """Begin to boot. `wait` waits for the end of the boot."""
        script = boot_script("phone.sh")
        nodes = " ".join(phone_profile(self.board.profile).nodes)
        words = (str(self._dir), str(self._base), self.board.name, nodes, ADBD)
        argv = [*UNSHARE, *boot_clock(), *confined(), "/bin/bash", "-c", script, "phone", *words]
        self._init = start_logged(argv, self._log)


ORDER_SECONDS = 60.0  # for one order line, which normally arrives at once
REBOOT_LOOK_SECONDS = 0.5  # between two checks whether a board was asked to reboot
BOOT_AT_ONCE = 8  # on two cores, a larger number makes each boot slower
_BOARDS = {"namespace": NamespaceBoard, "kernel": KernelBoard, "arm64": Arm64Board}
AnyBoard = NamespaceBoard | UserBoard | EmulatedPhone


class Daemon:
    """The daemon of a lab: it boots boards, hands connections to them and executes orders."""

    def __init__(self, folder: LabFolder, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._boards: dict[str, AnyBoard] = {}
        self._select = selectors.DefaultSelector()
        self._running = True
        self._adb = LabAdbServer(folder.root)
        self._control_dir = tempfile.mkdtemp(prefix="fleet-lab-")
        self._control = socket.socket(socket.AF_UNIX)

    def run(self) -> None:
        """Boot the boards, serve until the end, and stop the boards.

        The state file appears when every board accepts connections.
        """
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        self._control.bind(f"{self._control_dir}/control")
        self._control.listen()
        self._select.register(self._control, selectors.EVENT_READ, None)
        try:
            self._boot()
            self._publish()
            while self._running:
                for key, _ in self._select.select(REBOOT_LOOK_SECONDS):
                    self._serve(key.data)
                self._reboot()
        finally:
            self._down()

    def _stop(self, *_: object) -> None:
        self._running = False

    def _boot(self) -> None:
        for device in (*self._all_boards(), *self._all_phones()):
            listener = device.listen()
            device.board.serial = (
                f"127.0.0.1:{device.board.port}" if device.board.kind in PHONES else ""
            )
            self._boards[device.board.name] = device
            if listener is not None:
                self._select.register(listener, selectors.EVENT_READ, device)
        boards = list(self._boards.values())
        for first in range(0, len(boards), BOOT_AT_ONCE):
            some = boards[first : first + BOOT_AT_ONCE]
            for device in some:
                device.start()
            for device in some:
                device.wait()

    def _all_boards(self) -> Iterator[AnyBoard]:
        options, kind = self._options, self._options.kind
        chosen = profile(options.profile)
        base = ground(kind, bare=chosen.bare)
        for number in range(1, options.count + 1):
            name = f"lab{number:03d}"
            home = str(self._folder.board(name) / "home")
            board = Board(
                name=name,
                kind=kind,
                profile=options.profile,
                port=options.port + number - 1 if options.port else self._folder.last_port(name),
                user=getpass.getuser() if kind == "user" else chosen.user,
                home=home if kind == "user" else _home(chosen.user),
                host_key="",
            )
            self._folder.prepare_board(board)
            yield (
                UserBoard(board, self._folder)
                if kind == "user"
                else _BOARDS[kind](board, self._folder, base)
            )

    def _all_phones(self) -> Iterator[AnyBoard]:
        options = self._options
        if options.phones:
            self._adb.start(self._folder.last_port(ADB.name))
        profiles = options.phone_profile.split(",")
        for number in range(1, options.phones + 1):
            name = f"phone{number:03d}"
            first = options.phone_port
            board = Board(
                name=name,
                kind=options.phone_kind,
                profile=profiles[(number - 1) % len(profiles)],
                port=first + number - 1 if first else self._folder.last_port(name),
                user="shell",
                home="/data/local/tmp",
                host_key="",
            )
            if board.kind == "phone-emulator":
                board.user = getpass.getuser()
                board.home = str(self._folder.board(board.name) / "home")
            self._folder.prepare_board(board)
            yield (
                NamespacePhone(board, self._folder, phone_ground(board.profile))
                if board.kind == "phone"
                else EmulatedPhone(board, self._folder)
            )

    def _publish(self) -> None:
        every = [device.board for device in self._boards.values()]
        boards = [board for board in every if board.kind not in PHONES]
        phones = [board for board in every if board.kind in PHONES]
        server = self._adb.address if phones else ""
        self._folder.write_client_files(boards)
        self._folder.write_inventory(boards, phones, server)
        ports = {board.name: board.port for board in every}
        self._folder.write_ports(ports | ({ADB.name: self._adb.port} if phones else {}))
        self._folder.write_state(
            {
                "emulated": True,
                "pid": os.getpid(),
                "started": start_ticks(os.getpid()),
                "control": f"{self._control_dir}/control",
                "since": utc_text(),
                "boards": boards,
                "phones": phones,
                "adb_server": server,
            }
        )

    def _reboot(self) -> None:
        """Power-cycle the boards on which `reboot` was called."""
        for device in self._boards.values():
            if isinstance(device, NamespaceBoard) and device.wants_reboot:
                self._obey({"do": "power-cycle", "name": device.board.name})

    def _serve(self, what: AnyBoard | None) -> None:
        if isinstance(what, NamespaceBoard):
            with contextlib.suppress(OSError):
                what.accept()
        elif what is None:
            peer, _ = self._control.accept()
            # a client that stops inside an order does not stop the lab
            peer.settimeout(ORDER_SECONDS)
            with (
                contextlib.suppress(OSError, ValueError),
                peer,
                peer.makefile("rw", encoding="utf-8") as line,
            ):
                answer = self._obey(json.loads(line.readline() or "{}"))
                line.write(json.dumps(answer) + "\n")

    def _obey(self, order: dict[str, Any]) -> dict[str, str]:
        try:
            what = order.get("do")
            if what == "down":
                self._running = False
                return {}
            device = self._boards[order["name"]]
            if what == "signal" and isinstance(device, EmulatedPhone):
                device.signal(order["signal"])
                return {}
            device.power_off()
            if what == "reset":
                device.wipe()
            if what == "manner":
                if not isinstance(device, EmulatedPhone):
                    name = device.board.name
                    raise LabError(
                        f"the lab phone {name} runs a real adbd, which cannot have this fault",
                        hint="start the lab with --phone-kind phone-emulator",
                    )
                device.manner = order["manner"]
            if what in {"new-host-key", "old-host-key"}:
                self._folder.swap_key(device.board.name, new=what == "new-host-key")
            if what != "off":
                self._folder.prepare_board(device.board)
                device.start()
                device.wait()
            if what != "new-host-key":  # a re-flash leaves the lab's known_hosts unchanged
                self._publish()
        except (LabError, KeyError, OSError) as error:
            return {"error": str(error)}
        return {}

    def _down(self) -> None:
        for device in self._boards.values():
            with contextlib.suppress(OSError):
                device.power_off()
        self._adb.stop()
        self._folder.state_file.unlink(missing_ok=True)
        Path(self._control_dir, "control").unlink(missing_ok=True)
        Path(self._control_dir).rmdir()


def _home(user: str) -> str:
    return "/root" if user == "root" else f"/home/{user}"


def main() -> None:
    """Run `python -m fleet.lab.daemon`. A failure prints its reason last."""
    parser = argparse.ArgumentParser()
    for option in ("--dir", "--profile", "--kind", "--phone-profile", "--phone-kind"):
        parser.add_argument(option, required=True)
    for option in ("--count", "--port", "--phones", "--phone-port"):
        parser.add_argument(option, type=int, required=True)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = LabFolder(Path(options.dir))
    try:
        Daemon(folder, options).run()
    except LabError as error:
        sys.stderr.write(f"{error.message}\n{error.hint}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
