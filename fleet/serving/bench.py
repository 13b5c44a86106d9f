"""Clients that measure a service from outside: what a user of it waits for.

Times are those of the client: tunnel, queue and model together. Each thread is one client that
asks again as soon as it has its answer.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from fleet.model.errors import InputError, UnreachableError
from fleet.model.record import Measure

PERCENTILES = (50, 95, 99)
HEALTH_SECONDS = 10.0


@dataclass(frozen=True)
class Load:
    """What is asked: prompts in turn, by `clients` at one time, until `requests` have been begun
    or `seconds` are over; what runs then is still waited for. `timeout` seconds without a byte.
    """

    prompts: tuple[str, ...]
    clients: int = 1
    requests: int | None = None
    seconds: float | None = None
    stream: bool = True
    max_tokens: int | None = None
    timeout: float = 300.0


@dataclass
class Asked:
    """One request as its client saw it. Milliseconds from its start; `gaps` between tokens.

    `error` is "" for a whole answer; `queue_ms` is what the server said of its queue.
    """

    prompt: str
    error: str = ""
    status: int = 0
    text: str = ""
    ttft_ms: float | None = None
    gaps_ms: list[float] = field(default_factory=list)
    total_ms: float = 0.0
    tokens: int = 0
    queue_ms: float | None = None


@dataclass(frozen=True)
class Report:
    """A run: all requests, and how long it took in seconds."""

    load: Load
    asked: tuple[Asked, ...]
    seconds: float

    @property
    def errors(self) -> tuple[Asked, ...]:
        """Requests without a whole answer."""
        return tuple(one for one in self.asked if one.error)

    def measures(self) -> dict[str, Measure]:
        """By name, for a record. Percentiles are of whole answers; absent where there is none."""
        good = [one for one in self.asked if not one.error]
        found = {
            "clients": Measure(self.load.clients),
            "requests": Measure(len(self.asked)),
            "errors": Measure(len(self.errors)),
            "requests_per_s": Measure(len(good) / self.seconds, "1/s"),
            "tokens_per_s": Measure(sum(one.tokens for one in good) / self.seconds, "toks/sec"),
        }
        series = {
            "ttft": [one.ttft_ms for one in good if one.ttft_ms is not None],
            "inter_token": [gap for one in good for gap in one.gaps_ms],
            "total": [one.total_ms for one in good],
            "queue": [one.queue_ms for one in good if one.queue_ms is not None],
        }
        for name, values in series.items():
            for percent in PERCENTILES if values else ():
                found[f"{name}_p{percent}_ms"] = Measure(percentile(values, percent), "ms")
        return found


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` of all (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def look(url: str) -> dict[str, Any]:
    """/health of a service of ours. Raises UnreachableError, or InputError for another server."""
    try:
        answer = httpx.get(f"{url}/health", timeout=HEALTH_SECONDS, trust_env=False)
        found = answer.json()
        whole = {"name", "release", "emulated", "build"} <= set(found)
    except httpx.InvalidURL as error:
        raise InputError(f"{url} is no address: {error}") from error
    except httpx.HTTPError as error:
        raise UnreachableError(
            f"{url}: {type(error).__name__}: {error}",
            hint="fleet serve tunnel (prints the address)",
        ) from error
    except (ValueError, TypeError):
        whole = False
    if not whole:
        raise InputError(f"{url} is no service of fleet", hint="fleet serve status")
    return dict(found)


def run(url: str, token: str, load: Load) -> Report:
    """Put the load on the service; an error of one request ends nothing."""
    turn, lock = iter(_turns(load)), threading.Lock()
    asked: list[Asked] = []
    limits = httpx.Limits(max_connections=load.clients, max_keepalive_connections=load.clients)
    began = time.monotonic()
    with httpx.Client(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=httpx.Timeout(load.timeout, connect=30.0),
        limits=limits,
        trust_env=False,
    ) as client:

        def work() -> None:
            while True:
                with lock:
                    prompt = next(turn, None)
                if prompt is None:
                    return
                one = ask(client, prompt, load)
                with lock:
                    asked.append(one)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(load.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return Report(load, tuple(asked), time.monotonic() - began)


def _turns(load: Load) -> Iterator[str]:
    end = math.inf if load.seconds is None else time.monotonic() + load.seconds
    number = 0
    while time.monotonic() < end and (load.requests is None or number < load.requests):
        yield load.prompts[number % len(load.prompts)]
        number += 1


def ask(client: httpx.Client, prompt: str, load: Load) -> Asked:
    """One request; what went wrong is in the result."""
    one, began = Asked(prompt), time.perf_counter()
    body: dict[str, Any] = {"prompt": prompt}
    if load.max_tokens is not None:
        body["max_tokens"] = load.max_tokens
    try:
        if load.stream:
            with client.stream("POST", "/generate/stream", json=body) as answer:
                _streamed(one, answer, began)
        else:
            _whole(one, client.post("/generate", json=body))
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        one.error = f"{type(error).__name__}: {error}"[:300]
    one.total_ms = (time.perf_counter() - began) * 1000
    return one


def _whole(one: Asked, answer: httpx.Response) -> None:
    one.status = answer.status_code
    said = answer.json()
    if answer.status_code != httpx.codes.OK:
        one.error = _words(said)
        return
    one.text, one.queue_ms = said["text"], said["queue_ms"]
    one.tokens = said["usage"]["completion_tokens"]


def _streamed(one: Asked, answer: httpx.Response, began: float) -> None:
    one.status = answer.status_code
    if answer.status_code != httpx.codes.OK:
        answer.read()
        one.error = _words(answer.json())
        return
    event, last, whole = "", None, False
    for line in answer.iter_lines():
        key, _, value = line.partition(": ")
        if key == "event":
            event = value
        elif key == "data" and event == "token":
            now = time.perf_counter()
            if last is None:
                one.ttft_ms = (now - began) * 1000
            else:
                one.gaps_ms.append((now - last) * 1000)
            last = now
            one.text += json.loads(value)["text"]
        elif key == "data" and event == "done":
            said, whole = json.loads(value), True
            one.tokens, one.queue_ms = said["usage"]["completion_tokens"], said["queue_ms"]
        elif key == "data" and event == "error":
            one.error = _words(json.loads(value))
    if not whole and not one.error:
        one.error = "the stream ended before it was done"


def _words(said: object) -> str:
    error = said.get("error", {}) if isinstance(said, dict) else {}
    return f"{error.get('code', 'unknown')}: {error.get('message', '')}"[:300]
