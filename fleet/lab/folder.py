"""The lab folder: keys, passwords, and what each board keeps on disk."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.lab.phoneprofiles import phone_profile
from fleet.lab.profiles import profile
from fleet.lab.rootfs import find
from fleet.model.errors import LabError

PHONES = ("phone", "phone-emulator")  # kinds behind adb; the others are behind ssh


@dataclass
class Board:
    """One lab board. `pid` is the pid 1 of a namespace board, or the sshd of a user board.

    `upper` says where its files are: disk, or memory (lost at a power cycle). `serial` is what
    adb calls a phone.
    """

    name: str
    kind: str
    profile: str
    port: int
    user: str
    home: str
    host_key: str
    pid: int = 0
    upper: str = "disk"
    emulated: bool = True
    serial: str = ""


class LabFolder:
    """Files of a lab below one folder; private ones have mode 0600."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def identity_file(self) -> Path:
        """The private key that logs in to every board."""
        return self.root / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The host keys of the boards."""
        return self.root / "known_hosts"

    @property
    def state_file(self) -> Path:
        """What the daemon says of itself and of the boards."""
        return self.root / "state.json"

    @property
    def password(self) -> str:
        """The boards' password for login and sudo: random, of this lab only."""
        path = self.root / "password"
        return path.read_text("utf-8").strip() if path.is_file() else ""

    def board(self, name: str) -> Path:
        """The folder of a board."""
        return self.root / "boards" / name

    def prepare(self) -> None:
        """Make the keys and the password of the lab."""
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.identity_file.exists():
            make_key(self.identity_file)
        if not self.password:
            private(self.root / "password", secrets.token_urlsafe(12) + "\n")

    def prepare_board(self, board: Board) -> None:
        """Make the files of one board; its host key stays over power cycles and `up`."""
        folder = self.board(board.name)
        folder.mkdir(parents=True, exist_ok=True)
        self._mark(board)
        if board.kind in PHONES:
            phone_profile(board.profile, board.name.upper()).write(folder / "profile")
            return
        key = folder / "ssh_host_ed25519_key"
        if not key.exists():
            make_key(key)
        board.host_key = key.with_suffix(".pub").read_text("utf-8").strip()
        (folder / "authorized_keys").write_text(
            self.identity_file.with_suffix(".pub").read_text("utf-8"), "utf-8"
        )
        if board.kind != "user":
            private(folder / "chpasswd", f"{board.user}:{self.password}\n")
        profile(board.profile, real=board.kind == "arm64").write(folder / "profile")

    def _mark(self, board: Board) -> None:
        text = f"emulated: true\nname: {board.name}\nprofile: {board.profile}\n"
        (self.board(board.name) / "lab-board").write_text(text, "utf-8")

    def write_client_files(self, boards: list[Board]) -> None:
        """known_hosts and an ssh_config for `ssh -F .lab/ssh_config lab001`."""
        pins, config = [], ["# written by fleet lab; emulated boards on loopback"]
        for board in boards:
            kind, key = board.host_key.split()[:2]
            pins.append(f"[127.0.0.1]:{board.port} {kind} {key}")
            config += [
                f"Host {board.name}",
                "  HostName 127.0.0.1",
                f"  Port {board.port}",
                f"  User {board.user}",
                f'  IdentityFile "{self.identity_file}"',
                f'  UserKnownHostsFile "{self.known_hosts}"',
                "  IdentitiesOnly yes",
            ]
        whole(self.known_hosts, "\n".join(pins) + "\n")
        whole(self.root / "ssh_config", "\n".join(config) + "\n")

    def write_inventory(self, boards: list[Board], phones: list[Board], server: str) -> None:
        """inventory.yaml with all boards and phones, for `fleet ... -i .lab/inventory.yaml`."""
        lines = ["# written by fleet lab; everything here is emulated", "all:", "  children:"]
        if boards:
            lines += ["    boards:", "      vars:", "        ssh_config: ssh_config"]
            lines += ["        known_hosts: known_hosts", "      hosts:"]
            lines += [f"        {board.name}: {{}}" for board in boards]
        if phones:
            lines += ["    phones:", "      vars:", "        transport: adb"]
            lines += [f'        adb_server: "{server}"', "      hosts:"]
            lines += [
                f"        {phone.name}: {{serial: {json.dumps(phone.serial)}}}" for phone in phones
            ]
        whole(self.root / "inventory.yaml", "\n".join(lines) + "\n")

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace state.json as a whole."""
        whole(self.state_file, json.dumps(state, indent=1, default=asdict) + "\n")

    def read_state(self) -> dict[str, Any] | None:
        """state.json, None when there is none."""
        try:
            state = json.loads(self.state_file.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return state if isinstance(state, dict) else None


def make_key(path: Path) -> None:
    """A new ed25519 key pair. Raises LabError without ssh-keygen."""
    program = find("ssh-keygen")
    if program is None:
        raise LabError("ssh-keygen is not installed", hint="sudo apt-get install openssh-client")
    path.unlink(missing_ok=True)
    argv = [program, "-q", "-t", "ed25519", "-N", "", "-C", "fleet-lab", "-f", str(path)]
    subprocess.run(argv, check=True, timeout=30, stdin=subprocess.DEVNULL)


def private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)


def whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new text, never a part."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, "utf-8")
    part.replace(path)


def start_ticks(pid: int) -> str:
    """Start time of a process, "" when there is none: tells a reused pid from the old one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
