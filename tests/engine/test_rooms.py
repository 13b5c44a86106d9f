"""How often a deploy goes back and forth between two rooms."""

from __future__ import annotations

import pytest

from fleet.engine.transfer.context import TransferOptions

from .conftest import Bench
from .rooms import calls_between

pytestmark = pytest.mark.qairt


def test_a_deploy_asks_the_back_end_once_for_what_is_to_be_done(bench: Bench) -> None:
    transfer = TransferOptions(
        carrier="paramiko", compress="never"
    )  # the other way is one more stream
    with calls_between("engine", "ops") as calls:
        (done,) = bench.operation(run="never", transfer=transfer).deploy()
    assert done.outcome == "changed", done.error
    assert calls.total() <= 30, "\n".join(f"{n} {pair}" for pair, n in calls.most_common())
