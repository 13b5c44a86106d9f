"""Packages of another architecture than the device's own: seen, and not taken for its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleet.lab.debs import Deb
from fleet.model.system import SystemSpec

from .conftest import Bare, changes

Make = Callable[..., Bare]


def test_a_foreign_library_is_no_library_and_is_named(bare: Make) -> None:
    board = bare("bare-evk-norepo")
    for name in ("libfastrpc1", "fastrpc-support"):
        deb = Deb(name, "1.0.8-1", architecture="arm64")
        root = Path(f"/proc/{board.lab.board('lab001').pid}/root/srv")
        (root / deb.file_name).write_bytes(deb.build())
    board.root("dpkg --add-architecture arm64 && dpkg -i /srv/*_arm64.deb")
    plan = board.plan(board.spec(fastrpc="auto")).plan
    assert plan is not None
    (finding,) = [found for found in plan.findings if found.rule == "fastrpc-packages"]
    assert finding.refuses
    assert "fastrpc-support:arm64, libfastrpc1:arm64" in finding.have


def test_the_undo_leaves_foreign_packages(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    deb = Deb("libatomic1", "9", architecture="arm64")
    root = Path(f"/proc/{board.lab.board('lab001').pid}/root/srv")
    (root / deb.file_name).write_bytes(deb.build())
    board.root("dpkg --add-architecture arm64 && dpkg -i /srv/*_arm64.deb")
    before = board.tree()
    board.provision(SystemSpec(packages=("acl",)))
    result = board.undo("run1")
    assert result.error is None, result.error
    assert changes(before, board.tree()) == []
