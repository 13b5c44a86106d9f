"""The lock as a value: the same bytes for the same lock, and every difference named."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fleet.config.lockfile import load_lock
from fleet.model.errors import LockFileError
from fleet.model.files import FileRef
from fleet.model.lockfile import Lock, LockedFile, LockedRelease, differences, shortened, stale

FILE = LockedFile("lib/libGenie.so", "a" * 64, 10, arch="aarch64")
RELEASE = LockedRelease("t", "v73", "0" * 16, "2.51.0.1", {"A": "b"}, (FILE,))


def test_the_order_of_what_was_asked_makes_no_difference() -> None:
    other = replace(RELEASE, arch="v68")
    more = replace(RELEASE, files=(FILE, replace(FILE, name="lib/a")))
    one = Lock("x", "b" * 64, (RELEASE, other))
    two = Lock("x", "b" * 64, (other, RELEASE))
    assert one.text() == two.text()
    swapped = replace(more, files=more.files[::-1])
    assert Lock("x", "", (more,)).text() == Lock("x", "", (swapped,)).text()


def test_one_line_a_file() -> None:
    lines = Lock("x", "b" * 64, (RELEASE,)).text().splitlines()
    assert sum("sha256" in line for line in lines) == 1


def test_differences_name_the_file() -> None:
    assert differences(RELEASE, RELEASE) == []
    assert "QAIRT is 3" in differences(RELEASE, replace(RELEASE, build_id="3"))[0]
    gone = replace(RELEASE, files=())
    assert differences(RELEASE, gone) == [
        "lib/libGenie.so is in the lock file, but the release no longer contains it"
    ]
    assert differences(gone, RELEASE) == ["lib/libGenie.so is not in the lock file"]
    other = replace(RELEASE, files=(replace(FILE, sha256="c" * 64),))
    assert differences(RELEASE, other) == [
        "lib/libGenie.so is cccccccccccc (10 bytes), but the lock file has aaaaaaaaaaaa (10 bytes)"
    ]
    rest = replace(RELEASE, id="1" * 16)
    assert "environment" in differences(RELEASE, rest)[0]


def test_long_lists_are_shortened() -> None:
    assert shortened([str(n) for n in range(8)]) == "0; 1; 2; 3; 4; and 3 more"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": 11}, "(11 bytes), but the lock file has aaaaaaaaaaaa (10 bytes)"),
        (
            {"executable": True},
            "(10 bytes executable), but the lock file has aaaaaaaaaaaa (10 bytes)",
        ),
    ],
)
def test_an_edited_size_or_mode_is_a_difference(change: dict[str, object], said: str) -> None:
    other = replace(RELEASE, files=(replace(FILE, **change),))
    (line,) = differences(RELEASE, other)
    assert said in line
    (back,) = differences(other, RELEASE)
    assert back != line


def test_the_arch_of_a_file_is_a_remark_and_no_content() -> None:
    assert differences(RELEASE, replace(RELEASE, files=(replace(FILE, arch=""),))) == []


@pytest.mark.parametrize(
    "name",
    [
        "../x", "lib/../../x", "/etc/passwd", "./lib/x", "lib//x", "lib/./x", "lib/", "lib/a\tb",
        "lib/a\nb",
        "lib/a\x1b[31m",
        "lib/a\x7f", "lib/a\u2028b", "lib/a\x85", "lib/\udcff", "lib/a\u202eb", "",
    ],
)  # fmt: skip
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(LockFileError) as caught:
        replace(FILE, name=name)
    assert caught.value.message.isprintable()
    assert "fleet config lock" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "lib/a b",
        "bundle/x/y.bin",
        "bundle/größe 漢字 😀.bin",
        "dsp/-x",
        "input_list.txt",
        "site/numpy/x.py",
        "etc/passwd",
    ],
)
def test_odd_and_harmless_names_are_kept(name: str) -> None:
    assert replace(FILE, name=name).name == name


def test_what_is_there_twice_is_refused() -> None:
    with pytest.raises(LockFileError, match=r"two entries for .*libGenie\.so"):
        replace(RELEASE, files=(FILE, replace(FILE, sha256="c" * 64)))
    with pytest.raises(LockFileError, match="two entries for t v73"):
        Lock("x", "b" * 64, (RELEASE, replace(RELEASE, id="1" * 16)))


def test_a_lock_is_of_one_name_and_of_its_kinds() -> None:
    lock = Lock("x", "b" * 64, (RELEASE,))
    assert lock.of("x") is lock
    with pytest.raises(LockFileError, match="belongs to x, but the playbook is y"):
        lock.of("y")
    assert lock.required("t", "v73") is RELEASE
    for target, arch in (("t", None), ("t", "v75"), ("u", "v73")):
        with pytest.raises(LockFileError, match="no release for"):
            lock.required(target, arch)


def test_a_lock_of_some_devices_keeps_the_other_kinds_of_the_old_one() -> None:
    other = replace(RELEASE, arch="v68")
    newer = Lock("x", "c" * 64, (replace(RELEASE, id="1" * 16),))
    merged = newer.beside(Lock("x", "b" * 64, (RELEASE, other)))
    assert merged == Lock("x", "c" * 64, (*newer.releases, other))
    assert newer.beside(None) == newer


def test_stale_looks_at_kinds_that_are_locked_and_nobody_is() -> None:
    other = replace(RELEASE, arch="v68")
    old, new = Lock("x", "b" * 64, (RELEASE, other)), Lock("x", "b" * 64, (RELEASE,))
    assert stale(old, new, limited=True) == []
    assert stale(old, new, limited=False) == [
        "t v68: is in the lock file, but no device is of this kind"
    ]
    assert stale(new, old, limited=False) == ["t v68: is not in the lock file"]
    assert stale(old, replace(old, playbook="c" * 64), limited=False) == ["the playbook changed"]


def test_only_leaves_out_what_came_later() -> None:
    was, later = (FileRef(Path("/"), name, 1, "d" * 64) for name in (FILE.name, "bundle/README"))
    assert RELEASE.only([was, later]) == (was,)


def test_what_0_2_0_wrote_is_read_as_equal_and_written_as_it_was() -> None:
    path = Path(__file__).parent / "data" / "fleet-0.2.0.lock"
    program = LockedFile("bin/genie-t2t-run", "b" * 64, 1 << 40, executable=True)
    release = LockedRelease(
        "aarch64-oe-linux-gcc11.2", "v73", "0" * 16, "2.51.0.260929181845", {"A": "b ü"},
        (program, FILE),
    )  # fmt: skip
    lock = load_lock(path)
    assert lock == Lock("tiny", "c" * 64, (release,))
    assert lock.text() == path.read_text("utf-8")
