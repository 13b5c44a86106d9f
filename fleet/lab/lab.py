"""A lab: boards without hardware, usable from Python. See docs/lab.md."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, Self

import yaml

from fleet.lab.adbserver import reconnect
from fleet.lab.elf import fastrpc_library
from fleet.lab.folder import PHONES, Board, LabFolder, start_ticks
from fleet.lab.kernel import EXEC
from fleet.lab.kinds import AS_ROOT, choose_boards, choose_phones
from fleet.lab.loopback import MANNERS
from fleet.lab.namespace import confined, enter, is_apart, own_env
from fleet.lab.process import free_port, start_logged
from fleet.lab.profiles import phone_profile as known_phone
from fleet.lab.profiles import profile as known_profile
from fleet.model.errors import InputError, LabError

_NPU_FILE = {
    "heal": "put_back",
    "needs": 'test -d "$home/npu/lib"',
    "lacks": "the folder ~/npu on the board is empty",
    "cure": "fleet lab stock NAME (copies a runtime and a bundle to ~/npu)",
}


@dataclass(frozen=True)
class BoardFault:
    """A change of a board or phone and its undo, as POSIX shell that runs as root of the board.

    The fault is impossible on a board on which `needs` fails. `lacks` is then the reason and `cure`
    the command to type ("" if only another kind of board helps). `bare` limits the fault to bare
    boards.
    """

    about: str
    make: str
    heal: str
    needs: str = ""
    lacks: str = ""
    cure: str = ""
    bare: bool = False


def _fault(row: dict[str, Any]) -> BoardFault:
    pattern = row.pop("npu_file", None)
    if pattern is not None:
        row |= _NPU_FILE | {"make": f"keep_npu '{pattern}' && {row['make']}"}
    return BoardFault(**row)


def _text(name: str) -> str:
    return (files("fleet.lab") / name).read_text("utf-8")


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TABLE = {
    kind: {name: _fault(row) for name, row in rows.items()}
    for kind, rows in yaml.load(_text("faults.yaml"), Loader=_LOADER).items()  # noqa: S506 - safe
}
SET_UP_FAULTS: dict[str, BoardFault] = _TABLE["set-up"]
FAULTS: dict[str, BoardFault] = _TABLE["board"] | SET_UP_FAULTS
PHONE_FAULTS: dict[str, BoardFault] = _TABLE["phone"]
PHONE_FAULT_NAMES = tuple(dict.fromkeys((*PHONE_FAULTS, "offline", *MANNERS)))
# Signals that cause the same faults on an emulated phone, whose daemon is a single process.
SIGNALS = {"cut": "KILL", "blackhole": "STOP"}


def fault_argv(name: str, user: str, home: str, script: str, *, phone: bool) -> tuple[str, ...]:
    """Return the command that runs a script of a fault as root of its board."""
    shared = _text("phonefaults.sh" if phone else "faults.sh")
    libraries = (fastrpc_library("libcdsprpc.so.1", old=old) for old in (False, True))
    coded = (base64.b64encode(library).decode() for library in libraries)
    return ("sh", "-c", shared + script, name, user, home, *coded)


UP_SECONDS = 300.0
DOWN_SECONDS = 30.0
_PHONE_PATH = "PATH=/system/bin"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class LabPhones:
    """The phones of a lab. `profile` is one name, or names with commas that are used in turn.

    `kind` is phone (real adbd, needs root), phone-emulator or auto. Port 0 means free ports.
    """

    count: int = 0
    profile: str = "sm8650"
    kind: str = "auto"
    port: int = 0


class Lab:
    """A lab that is up. `boards` are in order. All of its results are marked as emulated."""

    def __init__(self, folder: LabFolder) -> None:
        self.folder = folder
        self._daemon: subprocess.Popen[bytes] | None = None

    @classmethod
    def up(
        cls,
        root: Path,
        *,
        count: int = 3,
        profile: str = "iq9075",
        kind: str = "auto",
        base_port: int = 0,
        phones: LabPhones | None = None,
    ) -> Self:
        """Boot `count` boards and phones; port 0 means free ports.

        A lab that is up already is reused.

        `kind` is one of KINDS. Raises LabError for missing tools, ports in use, or a lab that is up
        with another number of boards.
        """
        phones = phones or LabPhones()
        for name in phones.profile.split(","):
            known_phone(name)
        bare = known_profile(profile).bare
        lab = cls(LabFolder(root))
        lab.folder.root.mkdir(parents=True, exist_ok=True)
        with (lab.folder.root / "lock").open("w") as lock:
            if lab._is_up(lock):
                lab._check_counts(count, phones.count)
                return lab
            _check_ports(base_port, count, "--port")
            _check_ports(phones.port, phones.count, "--phone-port")
            if count:
                kind = choose_boards("namespace" if bare and kind == "auto" else kind)
            if bare and kind == "user":
                raise LabError(f"boards of profile {profile} need root", hint="sudo fleet lab up")
            if bare and kind != "namespace":
                raise LabError(
                    f"boards of the kind {kind} cannot use the profile {profile}", hint=AS_ROOT
                )
            phone_kind = phones.kind
            if phones.count:
                phone_kind = choose_phones(phone_kind, phones.profile)
            lab.folder.prepare()
            boards = ("--count", count, "--profile", profile, "--kind", kind, "--port", base_port)
            others = ("--phones", phones.count, "--phone-profile", phones.profile)
            more = ("--phone-kind", phone_kind, "--phone-port", phones.port)
            lab._boot([*boards, *others, *more], lock)
        return lab

    def _is_up(self, lock: IO[str]) -> bool:
        """Return True if the lab is up.

        Otherwise, this process then holds the lock and no lab is booting.

        Raises LabError if another process boots the lab for too long.
        """
        end = time.monotonic() + UP_SECONDS
        while not self.alive():
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self.alive()
            if time.monotonic() > end:
                raise LabError(
                    f"another process boots the lab in {self.folder.root}, for longer than "
                    f"{UP_SECONDS:g} s",
                    hint="fleet lab list (shows the boards once they are up)",
                )
            time.sleep(0.05)
        return True

    def _boot(self, options: Sequence[object], lock: IO[str]) -> None:
        """Start the daemon, which holds the lock until it ends."""
        self.folder.state_file.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "fleet.lab.daemon", "--dir", str(self.folder.root)]
        log = self.folder.root / "daemon.log"
        daemon = start_logged([*argv, *map(str, options)], log, keep=(lock.fileno(),))
        self._wait_until_up(daemon)

    def _check_counts(self, count: int, phones: int) -> None:
        have = (len(self.boards), len(self.phones))
        if have != (count, phones):
            raise LabError(
                f"a lab with {have[0]} boards and {have[1]} phones is already running",
                hint="fleet lab down, then start the lab again",
            )

    def _wait_until_up(self, daemon: subprocess.Popen[bytes]) -> None:
        self._daemon = daemon
        end = time.monotonic() + UP_SECONDS
        while time.monotonic() < end:
            if self.folder.state_file.exists():
                return
            if daemon.poll() is not None:
                text = (self.folder.root / "daemon.log").read_text("utf-8", "replace").strip()
                message, _, hint = text.rpartition("\n") if "\n" in text else (text, "", "")
                raise LabError(message or "the process of the lab ended", hint=hint)
            time.sleep(0.02)
        daemon.kill()
        raise LabError(
            f"the lab boards did not boot within {UP_SECONDS:g} s",
            hint="fleet lab up --count 1 (tries a single board)",
        )

    def alive(self) -> bool:
        """Return True if the daemon of this folder runs. A reused pid does not count."""
        state = self.folder.read_state()
        return bool(state) and start_ticks(state["pid"]) == state["started"] != ""  # type: ignore[index]

    @property
    def boards(self) -> list[Board]:
        """The current state of the boards. Raises LabError if no lab is up."""
        state = self.folder.read_state()
        if state is None or not self.alive():
            raise LabError(f"no lab is running in {self.folder.root}", hint="fleet lab up")
        return [Board(**fields) for fields in state["boards"]]

    @property
    def phones(self) -> list[Board]:
        """The current state of the phones, [] if no lab is up."""
        state = self.folder.read_state()
        return [Board(**fields) for fields in state["phones"]] if state and self.alive() else []

    @property
    def adb_server(self) -> str:
        """HOST:PORT of the lab's own adb server, "" without phones."""
        state = self.folder.read_state()
        return str(state["adb_server"]) if state else ""

    @property
    def inventory(self) -> Path:
        """The path of an inventory with all boards and phones."""
        return self.folder.root / "inventory.yaml"

    def board(self, name: str) -> Board:
        """Return one board or phone by name. Raises LabError."""
        for board in (*self.boards, *self.phones):
            if board.name == name:
                return board
        raise LabError(f"the lab has no board named '{name}'", hint="fleet lab list")

    def _tell(self, **order: str) -> None:
        state = self.folder.read_state()
        if state is None or not self.alive():
            raise LabError(f"no lab is running in {self.folder.root}", hint="fleet lab up")
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(UP_SECONDS)
            control.connect(state["control"])
            with control.makefile("rw", encoding="utf-8") as line:
                line.write(json.dumps(order) + "\n")
                line.flush()
                answer = json.loads(line.readline() or "{}")
        if "error" in answer:
            raise LabError(answer["error"], hint="fleet lab list (shows the boards and phones)")

    def power_cycle(self, name: str) -> None:
        """Cut the power of a board and boot it: files stay, processes and /dev do not, the boot id
        is new.
        """
        self._tell(do="power-cycle", name=self.board(name).name)
        self._await_phone(name)

    def _await_phone(self, name: str) -> None:
        """Wait until adb lists a phone that was restarted.

        The lab's daemon cannot do that, because it accepts the connections of the phones between
        its orders.
        """
        board = self.board(name)
        if board.kind in PHONES:
            reconnect(self.adb_server, board.serial)

    def power_off(self, name: str) -> None:
        """Cut the power of a board. Its port then accepts connections and closes them at once."""
        self._tell(do="off", name=self.board(name).name)

    def reset(self, name: str) -> None:
        """Reset a board to the state of the factory."""
        self._tell(do="reset", name=self.board(name).name)
        self._await_phone(name)

    def exec(self, name: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program as root of a board. Only kernel boards use sshd for this."""
        board = self.board(name)
        if board.kind in {"user", "phone-emulator"}:
            raise LabError(
                f"fleet cannot run programs as root on the lab board {name}, because you "
                "started the lab without root",
                hint=f"fleet lab down; {AS_ROOT}",
            )
        if not is_apart(board.pid):
            raise LabError(
                f"the lab board {name} is not running",
                hint="fleet lab list (shows which boards are running); fleet lab up (starts the "
                "boards)",
            )
        path = _PHONE_PATH if board.kind == "phone" else _PATH
        there = [
            *confined(),
            "nsenter",
            "-t",
            str(board.pid),
            *enter(board.kind),
            "env",
            "-i",
            path,
        ]
        there += [*own_env(board.kind), *argv]
        if board.kind == "kernel":
            config = str(self.folder.root / "ssh_config")
            there = ["ssh", "-F", config, "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"]
            there += ["-l", "root", name, shlex.join((*EXEC, *argv))]
        return subprocess.run(
            there,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def stock(self, name: str, files: Mapping[str, Path]) -> str:
        """Copy files to ~/npu of a namespace board, as a user would by hand; return that folder.

        `files` maps names below ~/npu to files of this host. The old content of ~/npu is deleted.
        """
        board = self.board(name)
        if board.kind not in {"namespace", "arm64"}:
            raise LabError(
                f"fleet can copy files only to lab boards of the kind namespace, but {name} is "
                "of another kind",
                hint=AS_ROOT,
            )
        root = Path(f"/proc/{board.pid}/root{board.home}/npu")
        shutil.rmtree(root, ignore_errors=True)
        for below, source in files.items():
            target = root / below
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        done = self.exec(name, ["chown", "-R", f"{board.user}:", f"{board.home}/npu"])
        if done.returncode:
            raise LabError(
                f"{name}: fleet could not set the owner of the files (chown): "
                f"{done.stderr.strip()}",
                hint=f"fleet lab reset {name}",
            )
        return f"{board.home}/npu"

    def fault(self, name: str, fault: str) -> None:
        """Cause a fault on a board."""
        self._change(name, fault, heal=False)

    def heal(self, name: str, fault: str) -> None:
        """Remove a fault from a board."""
        self._change(name, fault, heal=True)

    def _change(self, name: str, fault: str, *, heal: bool) -> None:
        board = self.board(name)
        if fault == "new-host-key" and board.kind not in PHONES:
            self._tell(do="old-host-key" if heal else fault, name=name)
            return
        if board.kind in PHONES and self._phone_link(name, board.kind, fault, heal=heal):
            return
        phone = board.kind in PHONES
        known = (PHONE_FAULTS if phone else FAULTS).get(fault)
        if known is None:
            names = PHONE_FAULT_NAMES if phone else (*FAULTS, "new-host-key")
            if not fault:
                raise InputError(
                    f"no fault is given for {name}",
                    hint="fleet lab inject -h (lists the faults)",
                )
            near = get_close_matches(fault, names, n=1)
            raise InputError(
                f"'{fault}' is not a fault of {name}",
                hint=f"did you mean '{near[0]}'?"
                if near
                else "fleet lab inject -h (lists the faults)",
            )

        def on_board(script: str) -> subprocess.CompletedProcess[str]:
            return self.exec(name, fault_argv(fault, board.user, board.home, script, phone=phone))

        kind = "bare-evk" if known.bare else "iq9075"
        if not heal and known.needs and on_board(known.needs).returncode:
            raise LabError(
                f"the lab board {name} cannot have the fault {fault}: {known.lacks}",
                hint=known.cure.replace("NAME", name)
                or f"start a lab whose boards can have this fault: fleet lab up --profile {kind}",
            )
        done = on_board(known.heal if heal else known.make)
        if done.returncode:
            raise LabError(
                f"{name}: {fault} failed: {done.stderr.strip()}", hint=f"fleet lab reset {name}"
            )

    def _phone_link(self, name: str, kind: str, fault: str, *, heal: bool) -> bool:
        """Change a fault of a phone's daemon or connection. Return False for all other faults."""
        if fault == "offline" and heal:
            self.power_cycle(name)
        elif fault == "offline":
            self.power_off(name)
        elif fault in MANNERS:
            self._tell(do="manner", name=name, manner="" if heal else fault)
            if heal:
                self._await_phone(name)
        elif fault in SIGNALS and kind == "phone-emulator":
            if not (heal and fault == "cut"):
                self._tell(do="signal", name=name, signal="CONT" if heal else SIGNALS[fault])
        else:
            return False
        return True

    def close(self) -> None:
        """End the daemon and thereby all boards, and delete their files.

        The daemon is asked first, then killed; only the recorded process is killed.
        """
        state = self.folder.read_state()
        if state is not None and self.alive():
            with contextlib.suppress(OSError, LabError):
                self._tell(do="down")
            end = time.monotonic() + DOWN_SECONDS
            while self.alive() and time.monotonic() < end:
                time.sleep(0.02)
            if self.alive():
                os.kill(state["pid"], signal.SIGKILL)
        if self._daemon is not None:
            self._daemon.wait(DOWN_SECONDS)
        self.folder.state_file.unlink(missing_ok=True)
        shutil.rmtree(self.folder.root / "boards", ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_ports(first: int, count: int, option: str) -> None:
    """Raise LabError if a requested port is in use, before anything is built."""
    for port in range(first, first + count if first else 0):
        free_port(port, option)
