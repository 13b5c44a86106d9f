"""The lock as a value: the same bytes for the same lock, and every difference named."""

from __future__ import annotations

from dataclasses import replace

from fleet.model.lockfile import Lock, LockedFile, LockedRelease, differences, shortened

FILE = LockedFile("lib/libGenie.so", "a" * 64, 10, arch="aarch64")
RELEASE = LockedRelease("t", "v73", "0" * 16, "2.51.0.1", {"A": "b"}, (FILE,))


def test_the_order_of_what_was_asked_makes_no_difference() -> None:
    other = replace(RELEASE, arch="v68")
    more = replace(RELEASE, files=(FILE, replace(FILE, name="a")))
    one = Lock("x", "b" * 64, (RELEASE, other, more)[:2])
    two = Lock("x", "b" * 64, (other, RELEASE))
    assert one.text() == two.text()
    swapped = replace(more, files=more.files[::-1])
    assert Lock("x", "", (more,)).text() == Lock("x", "", (swapped,)).text()


def test_one_line_a_file() -> None:
    lines = Lock("x", "b" * 64, (RELEASE,)).text().splitlines()
    assert sum("sha256" in line for line in lines) == 1


def test_differences_name_the_file() -> None:
    assert differences(RELEASE, RELEASE) == []
    assert "QAIRT 3" in differences(RELEASE, replace(RELEASE, build_id="3"))[0]
    gone = replace(RELEASE, files=())
    assert differences(RELEASE, gone) == ["lib/libGenie.so is locked and gone"]
    assert differences(gone, RELEASE) == ["lib/libGenie.so is not in the lock"]
    other = replace(RELEASE, files=(replace(FILE, sha256="c" * 64),))
    assert differences(RELEASE, other) == [
        "lib/libGenie.so: cccccccccccc (10 bytes), locked aaaaaaaaaaaa"
    ]
    rest = replace(RELEASE, id="1" * 16)
    assert "environment" in differences(RELEASE, rest)[0]


def test_long_lists_are_shortened() -> None:
    assert shortened([str(n) for n in range(8)]) == "0; 1; 2; 3; 4; and 3 more"
