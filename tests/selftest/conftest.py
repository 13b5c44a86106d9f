"""A lab with a board and a phone, and the ladder on one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from fleet.config.inventory import load_inventory
from fleet.engine.pool import DeviceResult
from fleet.lab import Lab, LabPhones
from fleet.lab.namespace import can_unshare
from fleet.model.runtime import Runtime
from fleet.runtimes.store import RuntimeStore
from fleet.selftest.climb import Selftest, SelftestOptions
from fleet.selftest.ladder import Climbed

BOARD, PHONE = "lab001", "phone001"


@dataclass
class Hill:
    """A lab, and climbing on it."""

    lab: Lab
    store: RuntimeStore
    runtime: Runtime

    def climb(
        self, name: str, *, runtime: bool = False, bulk: int = 4 << 20
    ) -> tuple[DeviceResult[Any], Climbed]:
        hosts = [h for h in load_inventory(self.lab.inventory).hosts if h.name == name]
        how = SelftestOptions(self.runtime if runtime else None, bulk)
        test = Selftest(hosts, lambda _: None, self.store, how)
        (result,) = test.run()
        assert result.error is None, result.error
        return result, test.climbed[name]

    def as_root(self, name: str, script: str) -> str:
        done = self.lab.exec(name, ["sh", "-c", script])
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def hill(tmp_path_factory: pytest.TempPathFactory, qairt_store: RuntimeStore) -> Iterator[Hill]:
    why = can_unshare()
    if why:
        pytest.skip(f"no namespace boards here: {why}")
    root = tmp_path_factory.mktemp("hill")
    with Lab.up(
        root, count=1, phones=LabPhones(1, kind="phone"), kind="namespace", base_port=0
    ) as lab:
        yield Hill(lab, qairt_store, qairt_store.get("2.51.0"))
