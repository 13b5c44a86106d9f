"""Board by version."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fleet.model.errors import InputError
from fleet.model.plain import to_plain
from fleet.profiles.compare.groups import group
from fleet.profiles.compare.matrix import matrix, words
from fleet.profiles.compare.verdict import Verdict

from .made import NEW, OLD, conditions, newer, noisy, separate


def test_cells_against_the_oldest_version() -> None:
    a = separate(noisy(10, 12, 1), host="a") + separate(noisy(8, 12, 2), host="b")
    b = newer(separate(noisy(9, 12, 3), host="a"))
    b = [replace(one, conditions=conditions(60)) for one in b]
    made = matrix(group("x", [*b, *a]), "decode_tps")
    assert made.versions == (OLD, NEW)
    assert made.boards == ("a", "b")
    changed = made.cells["a", NEW]
    assert changed.row is not None
    assert changed.row.verdict is Verdict.SLOWER
    assert "slower" in words(changed)
    assert made.cells["a", OLD].row is None
    assert words(made.cells.get(("b", NEW))) == "-"
    assert made.notes == (f"a, {NEW}: these conditions differ too: start temperature",)
    data = to_plain(made)
    assert data["rows"][1]["cells"][1] == {"version": NEW, "count": 0}
    assert data["rows"][0]["cells"][0]["count"] == 12


def test_versions_sort_as_numbers_and_releases_by_time() -> None:
    nine = [
        replace(one, origin={"build_id": "2.9.0.1"}, release="zzz")
        for one in separate(noisy(10, 6, 1))
    ]
    ten = newer(nine)
    made = matrix(group("x", [*ten, *nine]), "decode_tps")
    assert made.versions == ("2.9.0.1", NEW)
    releases = matrix(group("x", [*ten, *nine]), "decode_tps", "release")
    assert releases.versions == ("zzz", ten[0].release)


def test_an_emulated_cell_is_not_compared() -> None:
    a = separate(noisy(10, 12, 1))
    b = [replace(one, emulated=True) for one in newer(separate(noisy(9, 12, 3)))]
    made = matrix(group("x", a + b), "decode_tps")
    assert made.emulated == {"evk-01"}
    assert "not comparable" in words(made.cells["evk-01", NEW])


def test_nothing_measured_is_an_error_that_names_what_there_is() -> None:
    with pytest.raises(InputError, match="no valid run") as caught:
        matrix(group("x", separate([10.0])), "nope")
    assert "decode_tps" in caught.value.hint
