"""A board that says a password back: it stands in no output, error, journal or record of ours."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm

from .conftest import PLAYBOOK, ROOT, Bare

pytestmark = pytest.mark.qairt
CANARY = "cAnArY'7f\\3a"
# As a debug module of PAM, or a wrapper, does it without malice. The real sudo stands behind it.
SUDO = r"""#!/bin/sh
case " $* " in *" -S "*) IFS= read -r p || p= ;; *) exec /usr/bin/sudo.real "$@" ;; esac
printf 'pam_debug: password [%s] rejected\n' "$p" >&2
printf 'pam_debug: password [%s] rejected\n' "$p"
printf 'Authorization: Basic %s\n' "$(printf 'ubuntu:%s' "$p" | base64 -w 0)" >&2
printf 'log?p=%s\n' "$(printf %s "$p" | od -An -v -tx1 | tr -d '\n' | tr ' ' %)" >&2
[ -e /etc/let-in ] || exit 1
case " $* " in *" apt-get "*) exit 100 ;; esac
printf '%s\n' "$p" | /usr/bin/sudo.real "$@"
"""


def encoded() -> tuple[str, str]:
    """What base64 and URLs make of it. Of base64 without the ends, which its neighbours share."""
    basic = base64.b64encode(f"ubuntu:{CANARY}".encode()).decode()
    return basic[-len(CANARY) :].rstrip("="), "".join(f"%{ord(char):02x}" for char in CANARY)


@pytest.mark.parametrize("let_in", [False, True], ids=["sudo-refuses", "a-step-fails"])
def test_the_password_is_shown_and_kept_nowhere(
    bare: Callable[..., Bare], tmp_path: Path, let_in: bool
) -> None:
    board = bare("bare-evk")
    board.root(f"cat <<'END' | chpasswd\nubuntu:{CANARY}\nEND")
    board.root("mv /usr/bin/sudo /usr/bin/sudo.real")
    board.root(f"cat > /usr/bin/sudo <<'END'\n{SUDO}END\nchmod 755 /usr/bin/sudo")
    if let_in:
        board.root("touch /etc/let-in")
    (tmp_path / "secret").write_text(CANARY + "\n")
    inventory, playbook = tmp_path / "inventory.yaml", tmp_path / "playbook.yaml"
    inventory.write_text(
        "all:\n  hosts:\n    lab001:\n"
        f"      known_hosts: {board.lab.folder.known_hosts}\n"
        f"      become_password: file:{tmp_path / 'secret'}\n"
        f"      identity_file: {board.lab.folder.identity_file}\n"
        f"      host: 127.0.0.1\n      user: ubuntu\n      port: {board.host.port}\n"
    )
    playbook.write_text(
        PLAYBOOK.read_text().replace("../assets", str(ROOT / "assets"))
        + "\nfastrpc: auto\nsystem: {packages: [libatomic1]}\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(board.store.root)
    env = {**os.environ, "FLEET_HOME": str(home), "NO_COLOR": "1"}
    forms = (CANARY, repr(CANARY)[1:-1], json.dumps(CANARY)[1:-1], *encoded())
    for words in (
        ["deploy", "--only", "system"],
        ["deploy", "--only", "system", "--json"],
        ["deploy"],
        ["deploy", "--json"],
    ):
        done = warm.fleet(*words, playbook, "-i", inventory, env=env, cwd=tmp_path)
        said = done.stdout + done.stderr
        assert done.returncode == 1, said
        assert "***" in said, "what the board said is shown, without the password"
        for form in forms:
            assert form not in said, words
    journals = list(home.rglob("journal.jsonl"))
    assert journals
    assert any("***" in path.read_text() for path in journals)
    for path in home.rglob("*"):
        if path.is_file() and "runtimes" not in path.parts:
            for form in forms:
                assert form.encode() not in path.read_bytes(), path
