from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.config.inventory import load_inventory, select
from fleet.model.errors import InventoryError
from fleet.model.inventory import Host, Inventory

NAMES = ("evk01", "evk02", "evk03", "px1", "px2", "fe80::1")
LAB = Inventory(
    Path("lab.yaml"),
    tuple(Host(name) for name in NAMES),
    {
        "all": NAMES,
        "evks": ("evk01", "evk02", "evk03"),
        "phones": ("px1", "px2"),
        "berlin": ("evk02", "px1"),
        "empty": (),
        "ungrouped": ("fe80::1",),
    },
)

CASES = [
    ([], NAMES),
    (["all"], NAMES),
    (["*"], NAMES),
    (["evk02"], ("evk02",)),
    (["px1,evk01"], ("evk01", "px1")),
    (["px1", "evk01"], ("evk01", "px1")),
    (["px1, evk01"], ("evk01", "px1")),
    (["evks"], ("evk01", "evk02", "evk03")),
    (["ungrouped"], ("fe80::1",)),
    (["evk*"], ("evk01", "evk02", "evk03")),
    (["evk0?"], ("evk01", "evk02", "evk03")),
    (["phon*"], ("px1", "px2")),
    (["*1"], ("evk01", "px1", "fe80::1")),
    (["evks,!evk02"], ("evk01", "evk03")),
    (["!phones"], ("evk01", "evk02", "evk03", "fe80::1")),
    (["!evk*", "all"], ("px1", "px2", "fe80::1")),
    (["evks,&berlin"], ("evk02",)),
    (["&berlin"], ("evk02", "px1")),
    (["evks:phones:&berlin:!px1"], ("evk02",)),
    (["evks:!evks[0]"], ("evk02", "evk03")),
    (["evks[0]"], ("evk01",)),
    (["evks[-1]"], ("evk03",)),
    (["evks[-3]"], ("evk01",)),
    (["evks[0:1]"], ("evk01", "evk02")),
    (["evks[1:]"], ("evk02", "evk03")),
    (["evks[1-2]"], ("evk02", "evk03")),
    (["evk*[2]"], ("evk03",)),
    (["evk[01:02]"], ("evk01", "evk02")),
    (["evk0[13]"], ("evk01", "evk03")),
    (["~evk0[13]"], ("evk01", "evk03")),
    (["~(evk|px)\\d*2,evk01"], ("evk01", "evk02", "px2")),
    (["~(?:evk|px)\\d*2:?"], ("evk02", "px2")),
    (["~ph.*"], ("px1", "px2")),
    (["!~evk.*"], ("px1", "px2", "fe80::1")),
    (["fe80::1"], ("fe80::1",)),
    (["all,!fe80::1,!phones"], ("evk01", "evk02", "evk03")),
]


@pytest.mark.parametrize(("patterns", "names"), CASES)
def test_select(patterns: list[str], names: tuple[str, ...]) -> None:
    assert tuple(host.name for host in select(LAB, patterns)) == names


BAD = [
    (["evk1"], "no host or group matches 'evk1'", "did you mean 'evk01'?"),
    (["phone"], "no host or group matches 'phone'", "did you mean 'phones'?"),
    (["zzzzzzz"], "no host or group matches 'zzzzzzz'", "fleet config list"),
    (["all,!evk99"], "no host or group matches 'evk99'", "did you mean"),
    (["all,&brlin"], "no host or group matches 'brlin'", "did you mean 'berlin'?"),
    (["x*"], "no host or group matches 'x*'", ""),
    (["~x.*"], "no host or group matches '~x.*'", ""),
    (["~("], "'~(' is not a valid regular expression", "glob"),
    (["empty"], "group 'empty' has no hosts", "fleet config list"),
    (["evks[3]"], "'evks' has 3 hosts", "evks[2]"),
    (["evks[5:6]"], "'evks' has 3 hosts", "evks[2]"),
    (["evks,!evks"], "the selection 'evks,!evks' contains no host", "fleet config list"),
    (["evks,&phones"], "contains no host", ""),
    (["evks,,"], "contains an empty pattern", "--limit"),
    ([""], "contains an empty pattern", "--limit"),
    (["!"], "contains an empty pattern", "--limit"),
]


@pytest.mark.parametrize(("patterns", "message", "hint"), BAD)
def test_refused(patterns: list[str], message: str, hint: str) -> None:
    with pytest.raises(InventoryError, match=re.escape(message)) as caught:
        select(LAB, patterns)
    assert hint in caught.value.hint


@given(st.lists(st.sampled_from(NAMES), min_size=1), st.lists(st.sampled_from(NAMES)))
def test_order_is_that_of_the_file_and_excludes_win(chosen: list[str], out: list[str]) -> None:
    left = [name for name in NAMES if name in chosen and name not in out]
    patterns = [*(f"!{name}" for name in out), *chosen]
    if left:
        assert [host.name for host in select(LAB, patterns)] == left
    else:
        with pytest.raises(InventoryError):
            select(LAB, patterns)


def test_with_a_file(tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    path.write_text("g: {hosts: {'e[1:3]': }}\nh: {children: {g: }}\n")
    assert [host.name for host in select(load_inventory(path), ["h[1:2]"])] == ["e2", "e3"]
