"""Login environments as people have them: noise, odd shells' settings, odd folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.engine.status import status
from tests.transport.sshd import Sshd, running

from .conftest import Bench

pytestmark = pytest.mark.qairt
NOISE = 'echo "Welcome to the board"; echo "{not json" ; echo noise >&2; '
ODD = {
    "noise": NOISE,
    "umask": "umask 000; ",
    "tight umask": "umask 077; ",
    "language": "export LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de; ",
    "noclobber": "set -C; set -f; export IFS=:; ",
}
ALL = "tight umask", "language", "noclobber", "noise"
NAMES = ["with space", "it's", 'a"b', "$HOME", "ünï", "glob*[x]", "back\\slash"]


@pytest.fixture(
    params=[ALL, *(pytest.param((one,), marks=pytest.mark.slow, id=one) for one in ODD)],
    scope="module",
)
def odd_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sshd]:
    odd = "".join(ODD[one] for one in request.param)
    force = f'ForceCommand={odd}eval "$SSH_ORIGINAL_COMMAND"'
    with running(tmp_path_factory.mktemp("odd"), force) as server:
        yield server


def test_the_whole_job_in_an_odd_login(bench: Bench, odd_server: Sshd) -> None:
    bench.host = odd_server.host(base_dir=bench.host.base_dir, soc="QCS9075")
    assert bench.playbook.run is not None
    bench.playbook = replace(bench.playbook, run=replace(bench.playbook.run, warmups=0, repeats=1))
    (done,) = bench.operation().deploy()
    assert done.outcome == "changed", done.error or done.text
    (record,) = done.records
    assert record.counts
    assert "NPU" in record.text
    (again,) = bench.operation().deploy()
    assert again.outcome == "unchanged"
    (shown,) = status([bench.host], lambda _: None, parallel=1)
    assert shown.answer.deployed[0].state == "installed"


@pytest.mark.parametrize(
    "name",
    ["-rf", "".join(NAMES), *(pytest.param(one, marks=pytest.mark.slow) for one in NAMES)],
)
def test_a_base_folder_with_any_name(bench: Bench, name: str) -> None:
    bench.host = replace(bench.host, base_dir=f"{bench.base.parent}/{name}")
    bench.base = Path(bench.host.base_dir)
    (done,) = bench.operation(run="never").deploy()
    assert done.outcome == "changed", done.error or done.text
    assert bench.current() == done.plan.manifest.id  # type: ignore[union-attr]
    (again,) = bench.operation(run="never").deploy()
    assert again.outcome == "unchanged"


@pytest.mark.parametrize("name", ["a;b", "a:b"])
def test_a_base_folder_that_search_paths_cannot_hold(bench: Bench, name: str) -> None:
    bench.host = replace(bench.host, base_dir=f"{bench.base.parent}/{name}")
    (done,) = bench.operation(run="never").deploy()
    assert done.outcome == "failed"
    assert "base_dir" in done.error.hint  # type: ignore[union-attr]
    assert not Path(bench.host.base_dir).exists()
