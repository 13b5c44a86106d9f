"""The lab folder: keys, passwords, and the files of each board."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.lab.process import free_port
from fleet.lab.profiles import phone_profile, profile
from fleet.model.errors import LabError

# kinds reached through adb; the other kinds are reached through ssh
PHONES = ("phone", "phone-emulator")


@dataclass
class Board:
    """A lab board. `pid` is pid 1 of a namespace board, or the sshd of a user board.

    `upper` is where the board's changed files are: disk, or memory (lost at a power cycle).
    `serial` is the name of a phone in adb.
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

    @property
    def running(self) -> bool:
        """Return True if the board's process exists. A board that is off has none."""
        return bool(self.pid) and start_ticks(self.pid) != ""


class LabFolder:
    """The files of a lab below one folder. Private files have mode 0600."""

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
        """The state of the daemon and of its boards."""
        return self.root / "state.json"

    @property
    def password(self) -> str:
        """The random password of this lab for login and sudo on its boards, "" before `prepare`."""
        path = self.root / "password"
        return path.read_text("utf-8").strip() if path.is_file() else ""

    def board(self, name: str) -> Path:
        """Return the folder of a board."""
        return self.root / "boards" / name

    def prepare(self) -> None:
        """Create the keys and the password of the lab."""
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.identity_file.exists():
            make_key(self.identity_file)
        if not self.password:
            private(self.root / "password", secrets.token_urlsafe(12) + "\n")

    def prepare_board(self, board: Board) -> None:
        """Write the files of one board. Its host key survives power cycles and `up`."""
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

    def swap_key(self, name: str, *, new: bool) -> None:
        """Give a board a new host key and keep the old one, or restore the old key."""
        key = self.board(name) / "ssh_host_ed25519_key"
        for file in (key, key.with_suffix(".pub")):
            kept = file.with_name(f"{file.name}.kept")
            if new and not kept.exists():
                file.replace(kept)
            elif not new and kept.exists():
                kept.replace(file)
        if new:
            make_key(key)

    def _mark(self, board: Board) -> None:
        text = f"emulated: true\nname: {board.name}\nprofile: {board.profile}\n"
        (self.board(board.name) / "lab-board").write_text(text, "utf-8")

    def write_client_files(self, boards: list[Board]) -> None:
        """Write known_hosts, and an ssh_config for `ssh -F .lab/ssh_config lab001`."""
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
        """Write inventory.yaml with all boards and phones, for `fleet -i .lab/inventory.yaml`."""
        lines = ["# written by fleet lab; everything here is emulated", "all:", "  children:"]
        if boards:
            lines += ["    boards:", "      vars:", "        ssh_config: ssh_config"]
            lines += ["        known_hosts: known_hosts"]
            lines += ["        become_password: file:password", "      hosts:"]
            lines += [f"        {board.name}: {{}}" for board in boards]
        if phones:
            lines += ["    phones:", "      vars:", "        transport: adb"]
            lines += [f'        adb_server: "{server}"', "      hosts:"]
            lines += [
                f"        {phone.name}: {{serial: {json.dumps(phone.serial)}}}" for phone in phones
            ]
        whole(self.root / "inventory.yaml", "\n".join(lines) + "\n")

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace state.json atomically."""
        whole(self.state_file, json.dumps(state, indent=1, default=asdict) + "\n")

    def last_port(self, name: str) -> int:
        """Return the port that a device or `adb` had in the last lab if it is free, else 0.

        Inventories that contain the port then stay valid after `down` and `up`.
        """
        with contextlib.suppress(OSError, ValueError, LabError, AttributeError):
            ports = json.loads((self.root / "ports.json").read_text("utf-8"))
            return free_port(int(ports.get(name, 0)), "") if ports.get(name) else 0
        return 0

    def write_ports(self, ports: dict[str, int]) -> None:
        """Save the ports for the next lab in this folder."""
        whole(self.root / "ports.json", json.dumps(ports) + "\n")

    def read_state(self) -> dict[str, Any] | None:
        """Return the content of state.json, or None if it is missing or damaged."""
        try:
            state = json.loads(self.state_file.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return state if isinstance(state, dict) else None


def make_key(path: Path) -> None:
    """Create an ed25519 key pair. `path` is written last: if it exists, so does `path`.pub."""
    from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - heavy
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ed25519.Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    whole(path.with_suffix(".pub"), f"{public.decode('ascii')} fleet-lab\n")
    text = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    private(part, text.decode("ascii"))
    part.replace(path)


def private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)


def whole(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old or the new text, never a part."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, "utf-8")
    part.replace(path)


def start_ticks(pid: int) -> str:
    """Return the start time of a process, "" if there is none. It distinguishes a reused pid."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
