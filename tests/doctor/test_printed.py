"""What the doctor prints for a fault of a lab board, typed as it is printed: fix, check and undo.

A person reads the page, types the fixes on the workstation or in a login on the board until the
check is right, and types the undo. Nothing is shortened and nothing is filled in.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.lab import Lab
from fleet.lab.lab import FAULTS
from fleet.model.text import harmless
from tests.support_runtime import cache_root, cached_runtime

from .conftest import BUNDLE, PLAYBOOK, stock

pytestmark = [pytest.mark.root, pytest.mark.qairt, pytest.mark.slow]

# Fault → the cause that the page names first. Each has a fix to type, a check, and an undo.
TYPED = {
    "node-root-only": "fastrpc-node-permission",
    "old-rule": "fastrpc-node-permission",
    "left-group": "dma-heap-permission",
    "foreign-qnn": "mixed-install",
    "noexec": "noexec",
    "separator": "adsp-path-separator",
    "dsp-path": "dsp-library-path-override",
    "blob-cut": "context-binary-corrupt",
    "blob-changed": "context-binary-corrupt",
    "link-gone": "release-damaged",
    "unsealed": "release-damaged",
}
# Faults whose page has nothing to type that could work on a lab board, with the reason.
KERNEL = "a board in a namespace has no kernel of its own to load or start anything"
PERSON = "only a person can decide what to remove, to replace or to wait for"
BY_HAND = (
    "the files of a set-up by hand come from the user's own SDK, whose folder only the user knows"
)
NO_PACKAGE = "the lab changes the file and leaves its package, which no package manager mends"
TOOLS = "the doctor needs no such tool and names no problem; a deploy does"
LEFT = {
    **dict.fromkeys(("no-node", "cdsp-offline", "no-firmware", "wrong-soc", "no-shell"), KERNEL),
    **dict.fromkeys(("full-disk", "small-disk", "full-root", "read-only", "hot"), PERSON),
    **dict.fromkeys(
        (
            "stub-missing", "skel-missing", "stub-other-build", "skel-other-build",
            "skel-other-arch", "library-other-machine", "library-cut", "context-empty",
            "context-cut", "context-zeroed", "config-syntax", "config-schema",
            "tokenizer-missing", "old-skel-in-system",
        ),
        BY_HAND,
    ),
    **dict.fromkeys(
        ("no-python3", "no-hash-tool", "no-sudo", "held-dpkg", "broken-dpkg", "repo-gone"), TOOLS
    ),
    "soname-only": "the packages of this board bring only the versioned name anyway",
    "wrong-group": "the group of a provisioned board is in use",
    **dict.fromkeys(("no-libcdsprpc", "old-libcdsprpc"), NO_PACKAGE),
}  # fmt: skip
_ASKED = re.compile(r"\[y/N\]|\[sudo\] password|password for ", re.IGNORECASE)
_SECONDS = 240.0


@dataclass
class Desk:
    """The folder of a project in which a person types, and the board of its lab."""

    lab: Lab
    folder: Path
    env: dict[str, str]

    def here(self, command: str) -> tuple[int, str]:
        """Type a command on the workstation."""
        return self._typed(["sh", "-c", command])

    def there(self, command: str) -> tuple[int, str]:
        """Type a command in a new login on the board."""
        config = str(self.lab.folder.root / "ssh_config")
        return self._typed(["ssh", "-tt", "-F", config, "lab001", command])

    def typed(self, where: str, command: str) -> None:
        """Type a command of the page where the page says."""
        status, said = (self.here if where == "host" else self.there)(command)
        assert status == 0, f"{command}\n{said}"

    def _typed(self, argv: list[str]) -> tuple[int, str]:
        """Run it on a terminal; answer yes to questions, and give the password where asked."""
        password = (self.lab.folder.root / "password").read_text("utf-8").strip()
        near, far = pty.openpty()
        child = subprocess.Popen(
            argv, stdin=far, stdout=far, stderr=far, cwd=self.folder, env=self.env
        )
        os.close(far)
        said, answered, end = "", 0, time.monotonic() + _SECONDS
        while time.monotonic() < end:
            if select.select([near], [], [], 0.2)[0]:
                try:
                    said += os.read(near, 65536).decode("utf-8", "replace")
                except OSError:  # the other end of the terminal is closed
                    break
            elif child.poll() is not None:
                break
            asked = _ASKED.findall(said)
            if len(asked) > answered:
                answered = len(asked)
                word = "y" if "/" in asked[-1] else password
                os.write(near, f"{word}\n".encode())
        os.close(near)
        if child.poll() is None and time.monotonic() >= end:
            child.kill()
        return child.wait(), " ".join(harmless(said).split())

    def page(self) -> tuple[dict[str, Any], str]:
        """The first cause as JSON, {} for none, and the page that a person reads."""
        done = self.doctor("-o", "json")
        (target,) = json.loads(done)["targets"]
        return (target["causes"] or [{}])[0], self.doctor()

    def doctor(self, *more: str) -> str:
        argv = ["fleet", "doctor", "-l", "lab001", "--folder", "npu", *more]
        return subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        ).stdout


@pytest.fixture(scope="module")
def desk(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("desk")
    home = folder / "home"
    home.mkdir()
    (home / "runtimes").symlink_to(cache_root() / "runtimes")
    files = stock()
    cached_runtime()
    shutil.copytree(BUNDLE, folder / "tiny-genie")
    playbook = PLAYBOOK.read_text("utf-8").replace("../assets/tiny-genie", "tiny-genie")
    (folder / "tiny-genie.yaml").write_text(f"{playbook}\nfastrpc: auto\n")
    (folder / "fleet.yaml").write_text(
        "inventory: .lab/inventory.yaml\nplaybook: tiny-genie.yaml\nruns: runs\n"
    )
    scripts = Path(sys.executable).parent
    env = {
        **os.environ,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "FLEET_HOME": str(home),
        "NO_COLOR": "1",
    }
    with Lab.up(folder / ".lab", count=1, profile="bare-evk", kind="namespace", base_port=0) as lab:
        found = Desk(lab, folder, env)
        status, said = found.here("fleet deploy --no-run")
        assert status == 0, said
        lab.stock("lab001", files)
        yield found


def test_each_fault_of_a_board_is_typed_or_says_why_not() -> None:
    assert sorted({*TYPED, *LEFT}) == sorted(FAULTS)
    assert not set(TYPED) & set(LEFT)


@pytest.mark.parametrize("fault", TYPED)
def test_fix_check_and_undo_are_right_as_printed(desk: Desk, fault: str) -> None:
    desk.lab.fault("lab001", fault)
    try:
        cause, page = desk.page()
        assert cause["id"] == TYPED[fault], page
        assert page.count("\n  check  ") == 1
        check = page.partition("\n  check  ")[2].partition("\n")[0]
        typed = []
        for fix in cause["fix"]:
            if not fix["command"] or fix["changes"].startswith("nothing"):
                continue
            assert fix["command"] in page
            desk.typed(fix["where"], fix["command"])
            typed.append(fix)
            status, said = (desk.here if check.startswith("fleet ") else desk.there)(check)
            left = desk.page()[0].get("id")
            if left != cause["id"]:
                break
        assert typed, page
        assert left != cause["id"], said
        if check.startswith("fleet "):
            assert cause["title"] not in said
            # the mount of `noexec` hides what fleet linked for FastRPC, too
            assert status in {0, 3} or fault == "noexec", said
        for fix in reversed(typed):
            if fix["undo"].startswith(("fleet ", "mv ", "sudo ")):
                assert fix["undo"] in page
                desk.typed(fix["where"], fix["undo"])
        if typed[-1]["undo"]:
            assert desk.page()[0].get("id") == cause["id"], "the board is as before the fix"
    finally:
        desk.lab.heal("lab001", fault)
