"""5,000 malformed requests, made by schemathesis from the service's own document: no 5xx.

The server is the real one; its backend echoes, so that those which are in order cost no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from .conftest import TOKEN, Echo

pytestmark = pytest.mark.slow
MALFORMED = 5000


def test_5000_malformed_requests(shared: Echo) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="pip install schemathesis")
    counts: Counter[int] = Counter()
    with shared.client() as client:
        schema = schemathesis.openapi.from_dict(_without_token(client.get("/openapi.json").json()))
        operations = [result.ok() for result in schema.get_all_operations()]
        posts = [one for one in operations if one.method.upper() == "POST"]
        assert len(posts) == 4
        while sum(counts.values()) < MALFORMED:
            for operation in posts:
                strategy = operation.as_strategy(
                    generation_mode=schemathesis.GenerationMode.NEGATIVE
                )
                _all(strategy, MALFORMED // 4 + 20, lambda case: _send(client, case, counts))
        health = client.get("/health").json()
        said = client.post("/generate", json={"prompt": "still here"}).json()
    print(f"\nmalformed: {sum(counts.values())} requests, {dict(sorted(counts.items()))}")  # noqa: T201
    assert max(counts) < 500
    assert counts[200] <= MALFORMED / 100, "what the document forbids is refused"
    assert (health["pid"], health["ready"]) == (shared.process.pid, True)
    assert said["text"] == "still here "


def _without_token(document: dict[str, Any]) -> dict[str, Any]:
    """A third of the cases would only spoil the token; all are to spoil what is asked."""
    del document["components"]["securitySchemes"]
    for path in document["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
    return document


def _all(strategy: Any, count: int, send: Callable[[Any], None]) -> None:
    from hypothesis import HealthCheck, given, settings

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(case=strategy)
    def check(case: Any) -> None:
        send(case)

    check()


def _send(client: httpx.Client, case: Any, counts: Counter[int]) -> None:
    made = case.as_transport_kwargs(base_url=str(client.base_url))
    body = {key: made[key] for key in ("json", "data", "params", "cookies") if made.get(key)}
    if isinstance(body.get("data"), str | bytes):
        body["content"] = body.pop("data")
    head = {**dict(made.get("headers") or {}), "Authorization": f"Bearer {TOKEN}"}
    try:
        answer = client.request(made["method"], made["url"], headers=head, **body)
    except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError):
        return  # the client itself refuses to send it
    counts[answer.status_code] += 1
    assert answer.status_code < 500, answer.text
