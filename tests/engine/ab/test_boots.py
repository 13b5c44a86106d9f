"""`fleet ab --boots`: lab boards that really go down and come up between pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.inventory import load_inventory
from fleet.engine.run.ab.journal import AbJournal, Asked
from fleet.engine.run.ab.measuring import judged
from fleet.lab import Lab
from fleet.lab.namespace import can_unshare

from ..conftest import Bench
from .test_measuring import gone_on, playbook


@pytest.mark.skipif(bool(can_unshare()), reason="lab boards that reboot need namespaces")
def test_the_first_look_is_spread_over_boots(bench: Bench, tmp_path: Path) -> None:
    a, b = playbook(tmp_path / "a", 10), playbook(tmp_path / "b", 8.5)
    with Lab.up(tmp_path / "lab", count=1, profile="bare-evk-nopasswd", base_port=0) as lab:
        lab.exec("lab001", ["touch", "/usr/lib/libatomic.so.1"])  # nothing here loads it
        (host,) = load_inventory(lab.inventory).hosts
        bench.host = replace(host, soc="QCS9075")
        asked = Asked(str(a), str(b), "", "", (host.name,), {"decode_tps": -0.05}, boots=2)
        journal = AbJournal.begin(bench.runs, "ab", asked)
        result = gone_on(bench, journal)
        pairs = journal.pairs(host.name)
        journal.close()
    boots = [pair.a.conditions.boot_id for pair in pairs]
    assert [pair.b.conditions.boot_id for pair in pairs] == boots, "a pair is of one boot"
    assert len(pairs) == 8
    assert boots == [boots[0]] * 4 + [boots[-1]] * 4
    assert boots[0] != boots[-1]
    (found,) = judged(journal, pairs)
    assert result.answer.answers == (found,)
    assert found.boots == 2
    assert 0 <= (found.between_boots or 0) <= 1
    assert found.change_between is not None
