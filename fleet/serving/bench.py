"""Clients that measure a service from outside, as its users see it.

Times are those of the client: tunnel, queue and model together. Each thread is one client, which
sends the next request as soon as it has its answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from fleet.model.errors import InputError, UnreachableError
from fleet.model.record import Measure, Metrics, Record
from fleet.model.version import VERSION
from fleet.profiles.formats.base import percentile
from fleet.profiles.runs import new_run_id

PERCENTILES = (50, 95, 99)
HEALTH_SECONDS = 10.0


@dataclass(frozen=True)
class Load:
    """The load: prompts in turn, from `clients` at a time.

    It ends after `requests` have been started or `seconds` are over; running requests are then
    completed. `timeout` is in seconds without a byte.
    """

    prompts: tuple[str, ...]
    clients: int = 1
    requests: int | None = None
    seconds: float | None = None
    stream: bool = True
    max_tokens: int | None = None
    timeout: float = 300.0


@dataclass
class TimedRequest:
    """A request as its client saw it.

    Times are milliseconds from its start; `gaps` are between tokens.

    `error` is "" for a complete answer; `queue_ms` is the queue time that the server reports.
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
class LoadReport:
    """The result of a load: all requests, and the duration in seconds."""

    load: Load
    asked: tuple[TimedRequest, ...]
    seconds: float

    @property
    def errors(self) -> tuple[TimedRequest, ...]:
        """The requests without a complete answer."""
        return tuple(request for request in self.asked if request.error)

    @property
    def fine(self) -> bool:
        """True if requests were sent and each has a complete answer."""
        return bool(self.asked) and not self.errors

    def record(self, url: str, health: dict[str, Any], began: str) -> Record:
        """Return the load as a record. `health` is the answer of `look`, `began` the UTC time."""
        measures = self.measures()
        first = measures.get("ttft_p50_ms")
        problems = []
        if self.errors:
            count = f"{len(self.errors)} of {len(self.asked)} requests"
            problems.append(f"failed: {count}: {min(request.error for request in self.errors)}")
        how = "--stream" if self.load.stream else "--whole"
        return Record(
            run_id=new_run_id(),
            host=urlsplit(url).netloc,
            name=str(health["name"]),
            release=str(health["release"]),
            runner="http",
            started=began,
            seconds=round(self.seconds, 3),
            status=0,
            metrics=Metrics(ttft_ms=first.value if first else None, others=measures),
            problems=tuple(problems),
            emulated=bool(health["emulated"]),
            argv=(
                "fleet",
                "serve",
                "bench",
                "--http",
                url,
                "--clients",
                str(self.load.clients),
                how,
            ),
            prompt_sha256=hashlib.sha256("\0".join(self.load.prompts).encode()).hexdigest(),
            origin={"build_id": health["build"], "backend": health.get("backend", "")},
            fleet=VERSION,
        )

    def measures(self) -> dict[str, Measure]:
        """Return the numbers by name, for a record. Percentiles are those of complete answers.

        A percentile is absent if there is no complete answer.
        """
        good = [request for request in self.asked if not request.error]
        measures = {
            "clients": Measure(self.load.clients),
            "requests": Measure(len(self.asked)),
            "errors": Measure(len(self.errors)),
            "requests_per_s": Measure(len(good) / self.seconds, "1/s"),
            "tokens_per_s": Measure(sum(r.tokens for r in good) / self.seconds, "toks/sec"),
        }
        series = {
            "ttft": [request.ttft_ms for request in good if request.ttft_ms is not None],
            "inter_token": [gap for request in good for gap in request.gaps_ms],
            "total": [request.total_ms for request in good],
            "queue": [request.queue_ms for request in good if request.queue_ms is not None],
        }
        for name, values in series.items():
            for percent in PERCENTILES if values else ():
                measures[f"{name}_p{percent}_ms"] = Measure(percentile(values, percent), "ms")
        return measures


def look(url: str) -> dict[str, Any]:
    """Return /health of a fleet service. Raises UnreachableError, or InputError for another
    server.
    """
    try:
        answer = httpx.get(f"{url}/health", timeout=HEALTH_SECONDS, trust_env=False)
        health = answer.json()
        whole = {"name", "release", "emulated", "build"} <= set(health)
    except httpx.InvalidURL as error:
        raise InputError(f"{url} is not a URL: {error}", hint="write http://HOST:PORT") from error
    except httpx.HTTPError as error:
        raise UnreachableError(
            f"no fleet service answers at {url}: {error}",
            hint="start a tunnel to the device, then use the address that the tunnel prints: "
            "fleet serve tunnel",
        ) from error
    except (ValueError, TypeError):
        whole = False
    if not whole:
        raise InputError(f"the program at {url} is not a fleet service", hint="fleet serve status")
    return dict(health)


def run(url: str, token: str, load: Load) -> LoadReport:
    """Put the load on the service. An error of one request does not stop it."""
    turn, lock = iter(_turns(load)), threading.Lock()
    asked: list[TimedRequest] = []
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
                request = ask(client, prompt, load)
                with lock:
                    asked.append(request)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(load.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return LoadReport(load, tuple(asked), time.monotonic() - began)


def _turns(load: Load) -> Iterator[str]:
    end = math.inf if load.seconds is None else time.monotonic() + load.seconds
    number = 0
    while time.monotonic() < end and (load.requests is None or number < load.requests):
        yield load.prompts[number % len(load.prompts)]
        number += 1


def ask(client: httpx.Client, prompt: str, load: Load) -> TimedRequest:
    """Send one request. The result contains any error."""
    request, began = TimedRequest(prompt), time.perf_counter()
    body: dict[str, Any] = {"prompt": prompt}
    if load.max_tokens is not None:
        body["max_tokens"] = load.max_tokens
    try:
        if load.stream:
            with client.stream("POST", "/generate/stream", json=body) as answer:
                _streamed(request, answer, began)
        else:
            _whole(request, client.post("/generate", json=body))
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        request.error = f"{type(error).__name__}: {error}"[:300]
    request.total_ms = (time.perf_counter() - began) * 1000
    return request


def _whole(request: TimedRequest, answer: httpx.Response) -> None:
    request.status = answer.status_code
    reply = answer.json()
    if answer.status_code != httpx.codes.OK:
        request.error = _words(reply)
        return
    request.text, request.queue_ms = reply["text"], reply["queue_ms"]
    request.tokens = reply["usage"]["completion_tokens"]


def _streamed(request: TimedRequest, answer: httpx.Response, began: float) -> None:
    request.status = answer.status_code
    if answer.status_code != httpx.codes.OK:
        answer.read()
        request.error = _words(answer.json())
        return
    event, last, whole = "", None, False
    for line in answer.iter_lines():
        key, _, value = line.partition(": ")
        if key == "event":
            event = value
        elif key == "data" and event == "token":
            now = time.perf_counter()
            if last is None:
                request.ttft_ms = (now - began) * 1000
            else:
                request.gaps_ms.append((now - last) * 1000)
            last = now
            request.text += json.loads(value)["text"]
        elif key == "data" and event == "done":
            reply, whole = json.loads(value), True
            request.tokens, request.queue_ms = (
                reply["usage"]["completion_tokens"],
                reply["queue_ms"],
            )
        elif key == "data" and event == "error":
            request.error = _words(json.loads(value))
    if not whole and not request.error:
        request.error = "the stream of tokens ended before the answer was complete"


def _words(reply: object) -> str:
    error = reply.get("error", {}) if isinstance(reply, dict) else {}
    return f"{error.get('code', 'unknown')}: {error.get('message', '')}"[:300]
