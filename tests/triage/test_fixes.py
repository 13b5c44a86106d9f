"""Every cure says what it changes, whether it needs root, and how it is taken back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet.config.cause_file import load_causes
from fleet.lab.profiles import phone_profile, phone_profiles
from fleet.model.cause import Fix
from fleet.model.errors import InputError
from fleet.triage.knowledge import knowledge
from fleet.triage.triage import triage

from .test_causes import GOOD, write

FIXES = [
    pytest.param(fix, id=f"{cause.id}-{number}")
    for cause in knowledge().causes.values()
    for number, fix in enumerate(cause.fix)
]
READS = re.compile(
    r"(sudo )?(cat|df|dmesg|dpkg -l|dumpsys|file|find|findmnt|free|fuser|grep|journalctl|logcat)\b"
)


@pytest.mark.parametrize("fix", FIXES)
def test_a_fix_says_what_it_changes_and_how_that_is_undone(fix: Fix) -> None:
    assert fix.changes
    nothing = fix.changes.startswith("nothing")
    assert nothing or fix.undo or not fix.reversible, fix.title
    if "sudo " in fix.command:
        assert fix.needs_root, fix.title
    if READS.match(fix.command):
        assert nothing, fix.title
    assert not re.search(r"remove .*\b(libstdc\+\+6|coreutils|libc6)\b", fix.undo), (
        "breaks a system"
    )


def test_a_fix_without_a_way_back_is_refused(tmp_path: Path) -> None:
    text = GOOD + "fix:\n  - {platform: linux, title: do it, changes: the disk}\n"
    with pytest.raises(InputError, match="must say how to undo the change"):
        load_causes([write(tmp_path, text)])


def commands(log: str) -> str:
    (first, *_) = triage(log).causes
    return "\n".join(fix.command for fix in first.fixes)


def test_the_library_of_the_log_is_in_the_command() -> None:
    found = commands(
        "genie-t2t-run: error while loading shared libraries: libfoo.so.3: cannot open\n"
    )
    assert "-name 'libfoo.so.3*'" in found
    assert "dsprpc" not in found
    assert "libatomic1" not in found


def test_a_library_of_the_system_has_its_package() -> None:
    found = commands(
        "genie-t2t-run: error while loading shared libraries: libatomic.so.1: cannot open\n"
    )
    assert "apt-get install libatomic1" in found


@pytest.mark.parametrize("arch", ["v68", "v73", "v81"])
def test_the_arch_of_the_log_is_in_the_command(arch: str) -> None:
    skel = f"libQnnHtp{arch.upper()}Skel.so"
    log = f"ggml-hex: Hexagon Arch version {arch}\ncannot open {skel}: not found\n"
    found = commands(log)
    assert f"hexagon-{arch}/unsigned" in found


def test_no_arch_is_made_up() -> None:
    log = "ldd: qnn_open failed, 0x80000406\nunable to load skel library\n"
    assert not re.search(r"hexagon-v\d\d/", commands(log))


def test_nothing_of_a_log_is_obeyed_by_a_shell() -> None:
    log = 'dlopen failed: library "lib$(reboot);x.so" not found\n'
    for cause in triage(log).causes:
        for fix in cause.fixes:
            assert "reboot)" not in fix.command


def test_nothing_of_a_package_manager_is_typed_on_a_phone() -> None:
    for cause in knowledge().causes.values():
        for fix in cause.fixes("android"):
            assert fix.where == "host" or "apt" not in fix.command, cause.id


def test_a_lab_phone_has_the_fastrpc_library_of_a_firmware() -> None:
    """Whatever runs on it: without the library a phone with a live release is no healthy one."""
    for name in phone_profiles():
        assert "/vendor/lib64/libcdsprpc.so" in phone_profile(name).root, name
