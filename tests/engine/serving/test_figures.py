"""The figures of a service: many streams, memory, a kill under load.

Its own board, so that other tests change nothing of its memory. Slow: minutes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from fleet.runtimes.store import RuntimeStore
from fleet.serving import bench
from fleet.serving.bench import Load
from tests.assets.answers import known
from tests.transport.sshd import Sshd

from .conftest import Service, service_on

pytestmark = [pytest.mark.qairt, pytest.mark.slow]
CLIENTS = 64


@pytest.fixture(scope="module")
def loaded(
    service_board: Sshd, tmp_path_factory: pytest.TempPathFactory, qairt_store: RuntimeStore
) -> Iterator[Service]:
    one = service_on(service_board, tmp_path_factory.mktemp("figures"), qairt_store)
    assert one.playbook.serve is not None
    one.playbook = replace(one.playbook, serve=replace(one.playbook.serve, queue=CLIENTS))
    with one.running():
        yield one


def rss(url: str) -> int:
    return int(bench.look(url)["rss_bytes"])


def test_64_streams_for_60_seconds(loaded: Service, record_property: object) -> None:
    answers = known()
    with loaded.tunnel() as url:
        token = loaded.token()
        # Twice through all ten questions: libraries take their working memory then.
        bench.run(url, token, Load(tuple(answers), clients=8, requests=20, max_tokens=92))
        before = rss(url)
        load = Load(tuple(answers), clients=CLIENTS, seconds=60.0, max_tokens=92)
        report = bench.run(url, token, load)
        after = rss(url)
    found = {name: round(one.value, 2) for name, one in report.measures().items()}
    print(f"\n64 clients: {found}\nrss {before} -> {after} ({after - before:+d} bytes)")  # noqa: T201
    assert [one.error for one in report.errors] == []
    assert len(report.asked) >= CLIENTS
    for one in report.asked:
        assert one.text == answers[one.prompt]
    assert after - before < 4 << 20


def test_memory_stays_over_clients_that_leave(loaded: Service) -> None:
    """300 clients that go in the middle of their stream leave nothing behind."""
    with loaded.tunnel() as url, loaded.client() as client:

        def leave() -> None:
            body = {"prompt": "Tell me a story."}
            with client.stream("POST", "/generate/stream", json=body) as answer:
                next(answer.iter_lines())

        for _ in range(30):
            leave()
        before = rss(url)
        for _ in range(300):
            leave()
        after = rss(url)
        said = client.post("/generate", json={"prompt": "What is a skel?"}).json()
    print(f"\n300 clients that left: rss {before} -> {after}")  # noqa: T201
    assert said["text"] == known()["What is a skel?"]
    assert after - before < 4 << 20


def test_a_kill_under_load_is_an_error_within_5_s_for_all(loaded: Service) -> None:
    before = loaded.status()
    ends: list[tuple[str, float]] = []
    with loaded.tunnel() as url:
        token = loaded.token()
        head = {"Authorization": f"Bearer {token}"}
        limits = httpx.Limits(max_connections=CLIENTS)
        with httpx.Client(
            base_url=url, headers=head, timeout=120, limits=limits, trust_env=False
        ) as client:

            def one() -> None:
                asked = bench.ask(client, "Tell me a story.", Load(()))
                ends.append((asked.error, time.monotonic()))

            threads = [threading.Thread(target=one) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            while bench.look(url)["queue"] < CLIENTS // 2:
                time.sleep(0.05)
            count = len(ends)
            os.kill(int(str(before["pid"])), signal.SIGKILL)
            killed = time.monotonic()
            for thread in threads:
                thread.join()
            late = max(when for _, when in ends) - killed
            back = _back(url) - killed
    print(f"\nkill -9: the last of {CLIENTS - count} knew after {late:.2f} s, back {back:.2f} s")  # noqa: T201
    assert all(error for error, when in ends if when > killed + 0.5)
    assert late < 5


def _back(url: str) -> float:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if bench.look(url)["ready"]:
                return time.monotonic()
        except Exception:  # noqa: BLE001 - not yet
            pass
        time.sleep(0.1)
    raise AssertionError("it is not back")
