"""Becoming root: every way of it, and what cannot be done without."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.results import show_admin
from fleet.engine.everyday.execute import Executing, execute_everywhere
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Session
from fleet.engine.system.become import Become
from fleet.lab.namespace import enter
from fleet.model.command import Command
from fleet.model.files import file_ref
from fleet.model.secret import SecretRef
from fleet.model.system import SystemSpec, WantedFile

from .conftest import PLAYBOOK, ROOT, Bare

pytestmark = pytest.mark.qairt
Make = Callable[..., Bare]
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
SUDO_LOG = "Defaults logfile=/var/log/sudo.log, loglinelen=0\n"
SPEC = SystemSpec(fastrpc="auto", packages=("libatomic1",))


def logged(board: Bare) -> list[str]:
    """What really ran through sudo, by sudo's own log."""
    lines = board.root("cat /var/log/sudo.log 2>/dev/null || true").splitlines()
    found = [line.partition("COMMAND=")[2] for line in lines if "COMMAND=" in line]
    return [one for one in found if one != "/usr/bin/true"]


def with_log(board: Bare) -> Bare:
    board.root(f"printf '{SUDO_LOG}' > /etc/sudoers.d/80-log; chmod 440 /etc/sudoers.d/80-log")
    return board


@pytest.mark.parametrize("profile", ["bare-evk", "bare-evk-nopasswd"])
def test_exactly_the_planned_commands_run_as_root(bare: Make, profile: str) -> None:
    board = with_log(bare(profile))
    done = board.provision(SPEC)
    planned = [
        c.argv for step in done.plan.system_steps if step.needs_root for c in step.commands()
    ]
    ran = [tuple(line.split(" ")) for line in logged(board)]
    assert [(argv[0].rpartition("/")[2], *argv[1:]) for argv in ran] == planned


def test_without_sudo_nothing_is_begun_and_the_commands_are_named(bare: Make) -> None:
    board = bare("bare-evk-nosudo")
    before = board.tree()
    playbook = board.spec(fastrpc="auto", packages=("libatomic1",))
    result = board.deploy(playbook)
    assert result.outcome == "failed"
    assert "sudo is not installed" in result.text
    assert "fleet plan --admin" in result.error.hint  # type: ignore[union-attr]
    assert board.tree() == before


def test_without_sudo_not_even_package_files_are_sent(bare: Make, tmp_path: Path) -> None:
    board = bare("bare-evk-nosudo")
    tree = Path(f"/proc/{board.lab.board('lab001').pid}/root/srv/lab-apt/ubuntu-qcom-iot/qcom-ppa")
    debs = tuple(file_ref(tmp_path / one.name, one.name) for one in _copied(tree, tmp_path))
    result = board.deploy(board.spec(debs=debs))
    assert "sudo is not installed" in result.text
    assert result.bytes_sent == 0
    assert "fleet" not in board.root("ls /home/ubuntu")


def _copied(tree: Path, folder: Path) -> list[Path]:
    found = [next(tree.glob(f"{name}_*.deb")) for name in ("libatomic1", "acl")]
    return [Path(shutil.copy(one, folder)) for one in found]


def test_what_plan_prints_for_an_administrator_does_the_whole_work(bare: Make) -> None:
    board = bare("bare-evk-nosudo")
    spec = {
        "fastrpc": "auto",
        "packages": ("libatomic1",),
        "files": (
            WantedFile("/etc/npu.conf", b'it\'s $(id) `id` \\ "x"\n$HOME\n'),
            WantedFile("/etc/npu.bin", bytes(range(256)), "0755"),
        ),
        "members": {"video": ("",)},
    }
    text = io.StringIO()
    with redirect_stdout(text):
        show_admin([board.plan(board.spec(**spec))])
    done = subprocess.run(
        ["nsenter", "-t", str(board.lab.board("lab001").pid), *enter(), "env", "-i", PATH, "sh"],
        input=text.getvalue(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert board.root("cat /etc/npu.conf") == 'it\'s $(id) `id` \\ "x"\n$HOME\n'
    result = board.deploy(board.spec(**spec))
    assert result.error is None, result.error
    assert not any(step.needs_root for step in result.plan.system_steps)  # type: ignore[union-attr]
    assert board.deploy(board.spec(**spec)).outcome == "unchanged"


def test_a_wrong_password_is_tried_once_before_anything(bare: Make, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("not the password\n")
    secret = SecretRef(f"file:{tmp_path / 'wrong'}", Path("/"))
    board = with_log(bare("bare-evk", become_password=secret))
    before = board.tree()
    result = board.deploy(board.spec(fastrpc="auto", packages=("libatomic1",)))
    assert result.outcome == "failed"
    assert "sudo on the device refused" in result.text
    assert "not the password" not in result.text
    attempts = board.root("cat /var/log/sudo.log").count("incorrect password attempt")
    assert attempts == 1
    assert "1 incorrect password attempt" in board.root("cat /var/log/sudo.log")
    assert board.tree() == before


def test_with_a_live_ticket_of_sudo_the_password_is_no_input_of_the_command(bare: Make) -> None:
    """Without `-k` sudo would ask for none, and the command would read it."""
    board = bare("bare-evk")
    ticket = "Defaults timestamp_type=global, timestamp_timeout=5"
    board.root(f"echo '{ticket}' > /etc/sudoers.d/81-ticket; chmod 440 /etc/sudoers.d/81-ticket")
    assert board.host.become_password is not None
    secret = board.host.become_password.get()
    session = Session(board.host, board.events.append)
    session.open()
    try:
        typed = [secret.reveal().encode() + b"\n"]
        session.ask(Command(("sudo", "-S", "-v")), "become", stdin=typed)
        assert session.run(Command(("sudo", "-n", "true")), "become").ok, "the ticket lives"
        result = Become("password", secret).run(session, Command(("cat",)), "x", 30.0)
        assert result.text == "", "cat found nothing to read"
    finally:
        session.close()


def executed(board: Bare, *words: str) -> DeviceResult[Any]:
    """`fleet exec --sudo` of `words` on the board."""
    job = Executing(words, 30.0, sudo=True)
    (done,) = execute_everywhere(job, [board.host], board.events.append, parallel=1)
    return done


@pytest.mark.parametrize("profile", ["bare-evk", "bare-evk-nopasswd"])
def test_a_command_of_exec_runs_as_root_with_the_password_of_the_inventory(
    bare: Make, profile: str
) -> None:
    board = with_log(bare(profile))
    done = executed(board, "id -u; cat; tr '\\0' ' ' < /proc/$PPID/cmdline; echo; echo bad >&2")
    assert done.fine, done.error
    out, err = done.answer.stdout, done.answer.stderr
    assert out.splitlines()[0] == "0"
    assert err == "bad\n", "no prompt of sudo"
    if board.host.become_password is not None:
        secret = board.host.become_password.get().reveal()
        assert secret not in out + err + "".join(logged(board))
        shown = executed(board, "sh", "-c", f"echo {secret[:4]}''{secret[4:]}")
        assert secret not in str(shown.value), "masked where a command prints it"


def test_exec_without_a_way_to_root_runs_nothing(bare: Make) -> None:
    board = bare("bare-evk", become_password=None)
    done = executed(board, "touch /tmp/ran")
    assert done.outcome == "failed"
    assert "become_password" in done.error.hint  # type: ignore[union-attr]
    assert board.root("ls /tmp/ran 2>&1 || true").strip().endswith("No such file or directory")


def test_sudo_with_a_password_and_none_given(bare: Make) -> None:
    board = bare("bare-evk", become_password=None)
    result = board.deploy(board.spec(fastrpc="auto", packages=("libatomic1",)))
    assert result.outcome == "failed"
    assert "sudo asks for a password" in result.text
    assert "become_password" in result.error.hint  # type: ignore[union-attr]


def test_the_password_is_found_nowhere(bare: Make, tmp_path: Path) -> None:
    """In no argv, environment, output, log, record or file, on the board and here. The
    passphrase of the login's key is the same canary.
    """
    board = bare("bare-evk")
    canary = "cAnArY-7f3a"
    key = tmp_path / "key"
    key.write_bytes(board.lab.folder.identity_file.read_bytes())
    key.chmod(0o600)
    _encrypt(key, canary)
    board.root(f"echo 'ubuntu:{canary}' | chpasswd")
    (tmp_path / "secret").write_text(canary + "\n")
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        "all:\n  hosts:\n    lab001:\n"
        f"      known_hosts: {board.lab.folder.known_hosts}\n"
        f"      become_password: file:{tmp_path / 'secret'}\n"
        f"      key_passphrase: file:{tmp_path / 'secret'}\n"
        f"      identity_file: {key}\n      host: 127.0.0.1\n      user: ubuntu\n"
        f"      port: {board.host.port}\n"
    )
    playbook = tmp_path / "playbook.yaml"
    playbook.write_text(
        PLAYBOOK.read_text().replace("../assets", str(ROOT / "assets"))
        + "\nfastrpc: auto\nsystem: {packages: [libatomic1]}\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(board.store.root)
    seen = _watch_processes(canary)
    env = {**os.environ, "FLEET_HOME": str(home), "NO_COLOR": "1"}
    said = ""
    for words in (
        ["plan"],
        ["plan", "--json"],
        ["deploy", "--json"],
        ["deploy"],
        ["undo", "last", "--yes"],
    ):
        what = [str(playbook)] if words[0] != "undo" else []
        done = subprocess.run(
            [sys.executable, "-m", "fleet", *words, *what, "-i", str(inventory)],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            env=env,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout + done.stderr
    found, looked = seen()
    assert looked > 20
    assert found == []
    assert canary not in said
    for path in [one for one in home.rglob("*") if one.is_file() and "runtimes" not in one.parts]:
        assert canary.encode() not in path.read_bytes(), path
    grep = f"grep -rslF {canary} /home /var /etc /tmp /root /run 2>/dev/null || true"
    assert board.root(grep).split() == []


def _encrypt(key: Path, passphrase: str) -> None:
    """With paramiko's own backend: ssh-keygen would take the passphrase as an argument."""
    from cryptography.hazmat.primitives import serialization

    plain = serialization.load_ssh_private_key(key.read_bytes(), password=None)
    key.write_bytes(
        plain.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.BestAvailableEncryption(passphrase.encode()),
        )
    )


def _watch_processes(canary: str) -> Callable[[], tuple[list[str], int]]:
    """Look at argv and environment of every process of this machine, boards included."""
    found: list[str] = []
    looked = 0
    stop = threading.Event()

    def look() -> None:
        nonlocal looked
        while not stop.is_set():
            for folder in Path("/proc").iterdir():
                if not folder.name.isdigit() or int(folder.name) == os.getpid():
                    continue
                for name in ("cmdline", "environ"):
                    try:
                        text = (folder / name).read_bytes()
                    except OSError:
                        continue
                    if canary.encode() in text:
                        found.append(f"{folder}/{name}: {text[:200]!r}")
            looked += 1
            time.sleep(0.01)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()

    def end() -> tuple[list[str], int]:
        stop.set()
        thread.join()
        return found, looked

    return end
