"""Small things that everything stands on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fleet.model import errors
from fleet.model.command import Command, script
from fleet.model.deadline import Deadline, Stall, parse_duration
from fleet.model.errors import DeadlineError, FleetError, InputError, Position
from fleet.model.files import check_name, file_ref, human_bytes
from fleet.model.manifest import Manifest
from fleet.model.plain import to_plain
from fleet.model.runtime import same_build, version_key


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("300ms", 0.3), (5, 5), (" 10 s ", 10)],
)
def test_durations(text: str | int, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-5s", "0", "5 days", "1,5s", "nan", "5s5s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InputError):
        parse_duration(text)


def test_deadlines() -> None:
    long = Deadline(100)
    assert 99 < long.remaining <= 100
    long.check("nothing")
    short = Deadline(0)
    assert short.expired
    assert short.remaining == 0
    with pytest.raises(DeadlineError, match="waiting did not end within 0 s"):
        short.check("waiting")


def test_a_stall_starts_again_with_every_byte_and_a_deadline_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stall, plain = Stall(5), Deadline(5)
    for _ in range(3):
        now += 4
        assert not stall.expired
        stall.touch()
        plain.touch()
    assert plain.expired
    now += 5
    assert stall.expired


@pytest.mark.parametrize("name", ["A B", "1A", "A-B", "", "A=B", "Ä"])
def test_names_of_variables_are_checked(name: str) -> None:
    with pytest.raises(InputError):
        Command(("x",), env={name: "v"})
    with pytest.raises(InputError):
        Command(("x",), unset=(name,))


def test_commands_without_a_program_or_with_nul() -> None:
    wrong: tuple[Callable[[], Command], ...] = (
        lambda: Command(()),
        lambda: Command(("a\0b",)),
        lambda: Command(("a",), cwd="\0"),
    )
    for bad in wrong:
        with pytest.raises(InputError):
            bad()
    assert script("echo", "a", "b").argv == ("sh", "-c", "echo", "fleet", "a", "b")


@pytest.mark.parametrize("name", ["", "/abs", "../up", "a/../../b", "a\nb", "a\0b"])
def test_names_that_leave_a_release(name: str) -> None:
    with pytest.raises(InputError):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "a/b.so", "..a/b", "a b", "-rf", "$(id)", "é"])
def test_names_that_stay_inside(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (127338202, "127.3 MB"),
     (7_000_000_000, "7.0 GB"), (9e15, "9000000.0 GB"), (None, "unknown")],
)  # fmt: skip
def test_bytes_for_people(count: int | None, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2.45.0.260326", "2.45.0.260326154327", True),
        ("2.45.0", "2.45.0.260326154327", True),
        ("v2.43.0.260127150333_193827", "2.43.0.260127150333", True),
        ("2.51.0.260929181845", "2.51.0.260929181845", True),
        ("2.45.0.260326", "2.45.0.260327", False),
        ("2.45.0", "2.46.0", False),
        ("2.4.0", "2.45.0", False),
    ],
)
def test_builds_are_compared_as_qualcomm_does(one: str, other: str, same: bool) -> None:
    assert same_build(one, other) is same
    assert same_build(other, one) is same


def test_versions_are_ordered_as_numbers() -> None:
    texts = ["2.9.0", "2.47.0.260601114230", "2.48.40.260702151143", "v2.51.0.260929181845_1"]
    assert sorted(texts, key=version_key) == texts
    with pytest.raises(ValueError, match="invalid literal"):
        version_key("latest")


@given(st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 99)))
def test_a_version_equals_itself_with_any_stamp(parts: tuple[int, int, int]) -> None:
    core = ".".join(map(str, parts))
    assert same_build(core, f"v{core}.260101000000_77")


def test_errors_are_one_tree_with_exit_codes() -> None:
    kinds = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, FleetError)
    ]
    assert len(kinds) > 15
    doc = errors.__doc__ or ""
    for kind in kinds:
        assert kind.__name__ in doc, f"{kind.__name__} is not in the tree of the module"
        assert kind.exit_code in {1, 2, 3, 4, 130}


def test_an_error_says_where_and_what_to_do() -> None:
    error = InputError("bad key", hint="try x", position=Position(Path("a.yaml"), 3, 5))
    assert str(error) == "a.yaml:3:5: bad key"
    assert to_plain(error)["hint"] == "try x"
    assert str(FleetError("broke", device="evk")) == "evk: broke"


def test_a_release_id_depends_on_content_only(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f").write_bytes(b"same")
    first = Manifest("n", (file_ref(tmp_path / "one/f", "a"), file_ref(tmp_path / "one/f", "b")))
    again = Manifest("n", (file_ref(tmp_path / "two/f", "b"), file_ref(tmp_path / "two/f", "a")))
    assert first.id == again.id
    assert len(first.blobs) == 1
    assert str(tmp_path) not in str(to_plain(first))
    others = (
        structs.replace(first, name="m"),
        structs.replace(first, env={"A": "b"}),
        structs.replace(first, unset=("X",)),
        structs.replace(first, origin={"x": 1}),
        structs.replace(first, files=first.files[:1]),
        structs.replace(first, files=(replace(first.files[0], executable=True), first.files[1])),
    )
    assert len({first.id, *(one.id for one in others)}) == 7
    assert others[-1].blobs[first.files[0].sha256].executable
