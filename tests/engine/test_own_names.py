"""A pushed file named like one of fleet's own is refused before a byte moves."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.engine.pushing import Push
from fleet.model.errors import InputError
from fleet.model.own_names import own_name
from tests.provision.conftest import Bare, bare, labs

from .conftest import Bench

__all__ = ["bare", "labs"]

OWN = [
    *(
        f"{name}{end}"
        for name in ("env.sh", "env.ps1", "manifest.json", ".installed", ".seal")
        for end in ("", ".new")
    ),
    ".seal-mine",
    "sub/.seal",
    "env.sh/inside",
    ".files",
    ".end",
    ".new-link",
]


def folder(root: Path, *names: str, content: bytes = b"mine") -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.mark.parametrize("name", OWN)
def test_a_push_of_it_is_refused_with_name_reason_and_cure(bench: Bench, name: str) -> None:
    source = folder(bench.base.parent / "data", "good", name)
    with pytest.raises(InputError, match="is reserved for a file of fleet") as caught:
        Push("data", [source], [bench.host], bench.events.append).push()
    assert name in caught.value.message
    assert caught.value.hint
    assert bench.events == []


def test_a_single_file_too(bench: Bench) -> None:
    source = folder(bench.base.parent / "data", "manifest.json") / "manifest.json"
    with pytest.raises(InputError, match=r"manifest\.json"):
        Push("data", [source], [bench.host], bench.events.append)


def test_the_same_names_elsewhere_are_brought(bench: Bench) -> None:
    names = ("sub/env.sh", "sub/manifest.json", "Manifest.json", "manifest.json.old", "a.seal")
    source = folder(bench.base.parent / "data", *names)
    (done,) = Push("data", [source], [bench.host], bench.events.append).push()
    assert done.outcome == "changed", done.error
    for name in names:
        assert (bench.base / "current" / "data" / name).read_bytes() == b"mine"
    (again,) = Push("data", [source], [bench.host], bench.events.append).push()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)


@pytest.mark.parametrize(
    ("name", "posix", "windows"),
    [
        ("env.sh", "env.sh", "env.sh"),
        ("./env.sh", "env.sh", "env.sh"),
        ("ENV.SH", "", "ENV.SH"),
        ("manifest.json::$DATA", "", "manifest.json::$DATA"),
        ("env.ps1 . ", "", "env.ps1 . "),
        ("lib/.SEAL.new", "", ".SEAL.new"),
        ("lib/env.sh", "", ""),
        ("seal", "", ""),
    ],
)
def test_how_names_are_read(name: str, posix: str, windows: str) -> None:
    assert (own_name(name), own_name(name, windows=True)) == (posix, windows)


def test_no_folder_can_break_a_release_of_others_where_the_login_is_root(
    bare: Callable[..., Bare], tmp_path: Path
) -> None:
    """All of the board can be written there, blobs too."""
    board = bare("bare-qcom-linux")
    victim = folder(tmp_path / "vic", "data.bin", content=b"public" * 1000)
    attack = folder(tmp_path / "att", "env.sh.new", ".installed.new", content=b"public" * 1000)
    replaced = folder(tmp_path / "rep", "env.sh", "manifest.json")
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(
        f"all:\n  hosts:\n    lab001: {{host: 127.0.0.1, port: {board.host.port}, user: root,\n"
        f"      identity_file: {board.lab.folder.identity_file},\n"
        f"      known_hosts: {board.lab.folder.known_hosts}}}\n"
    )

    def push(source: Path, name: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "fleet", "push", source, "--name", name, "-i", inventory],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "FLEET_HOME": str(tmp_path / "home"), "NO_COLOR": "1"},
        )
        return done.returncode, done.stdout + done.stderr

    assert push(victim, "victim")[0] == 0
    before = board.root("ls -R /root/fleet /var/lib/fleet 2>/dev/null | sort")
    for source, name in ((attack, "att"), (replaced, "rep")):
        status, said = push(source, name)
        assert status == 2, said
        assert "is reserved for a file of fleet" in said
    assert board.root("ls -R /root/fleet /var/lib/fleet 2>/dev/null | sort") == before
    where = board.root("find / -xdev -path '*/current/victim' 2>/dev/null").strip()
    digest = hashlib.sha256(b"public" * 1000).hexdigest()
    assert board.root(f"sha256sum < {where}/data.bin").split()[0] == digest
