from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.config.ranges import MAX_HOSTS, expand, split_port
from fleet.model.errors import InventoryError

# Expectations follow ansible.parsing / plugins.inventory.expand_hostname_range.
CASES = [
    ("evk1", ["evk1"]),
    ("evk[01:03]", ["evk01", "evk02", "evk03"]),
    ("evk[1:3]x", ["evk1x", "evk2x", "evk3x"]),
    ("evk[8:11]", ["evk8", "evk9", "evk10", "evk11"]),
    ("evk[:2]", ["evk0", "evk1", "evk2"]),
    ("evk[1:10:4]", ["evk1", "evk5", "evk9"]),
    ("evk[a:c]", ["evka", "evkb", "evkc"]),
    ("evk[a:f:2]", ["evka", "evkc", "evke"]),
    ("r[1:2]-[a:b]", ["r1-a", "r1-b", "r2-a", "r2-b"]),
    ("evk[5:5]", ["evk5"]),
    ("evk[1]", ["evk[1]"]),
    ("2001:db8::1", ["2001:db8::1"]),
]


@pytest.mark.parametrize(("pattern", "names"), CASES)
def test_expand(pattern: str, names: list[str]) -> None:
    assert list(expand(pattern)) == names


BAD = [
    ("evk[3:1]", "range [3:1] runs backwards", "smaller end first"),
    ("evk[f:a]", "range [f:a] runs backwards", "smaller end first"),
    ("evk[01:100]", "the range [01:100] do not have the same number of digits", "[001:100]"),
    ("evk[001:10]", "the range [001:10] do not have the same number of digits", "[001:010]"),
    ("evk[a:9]", "range [a:9] mixes a letter and a number", "[a:f]"),
    ("evk[1:9:0]", "range [1:9:0] has the step 0", "1 or more"),
    ("evk[1:999999999]", f"more than {MAX_HOSTS} hosts", "write a smaller range"),
    ("e[1:999][1:999]", f"more than {MAX_HOSTS} hosts", "write a smaller range"),
]


@pytest.mark.parametrize(("pattern", "message", "hint"), BAD)
def test_refused(pattern: str, message: str, hint: str) -> None:
    with pytest.raises(InventoryError, match=re.escape(message)) as caught:
        expand(pattern)
    assert hint in caught.value.hint


PORTS = [
    ("evk1", "evk1", None),
    ("evk1:2222", "evk1", 2222),
    ("evk[1:3]:2222", "evk[1:3]", 2222),
    ("evk[1:3]", "evk[1:3]", None),
    ("evk:0", "evk:0", None),
    ("evk:99999", "evk:99999", None),
    (":22", ":22", None),
    ("2001:db8::1", "2001:db8::1", None),
    ("[2001:db8::1]", "2001:db8::1", None),
    ("[2001:db8::1]:22", "2001:db8::1", 22),
]


@pytest.mark.parametrize(("name", "host", "port"), PORTS)
def test_split_port(name: str, host: str, port: int | None) -> None:
    assert split_port(name) == (host, port)


@given(
    st.text("abc-.", max_size=4),
    st.integers(0, 500),
    st.integers(0, 60),
    st.integers(1, 9),
    st.integers(0, 5),
)
def test_numbers_with_width(head: str, first: int, more: int, step: int, width: int) -> None:
    last = first + more
    low = str(first).zfill(width)
    high = str(last).zfill(len(low)) if low.startswith("0") and len(low) > 1 else str(last)
    if low.startswith("0") and len(high) != len(low):
        low = str(first)
        high = str(last)
    names = expand(f"{head}[{low}:{high}:{step}].x")
    numbers = [int(name[len(head) : -2]) for name in names]
    assert numbers == list(range(first, last + 1, step))
    assert len(set(names)) == len(names)
    if low.startswith("0") and len(low) > 1:
        assert {len(name) for name in names} == {len(head) + len(low) + 2}
