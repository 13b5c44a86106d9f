"""The text of a selection."""

from __future__ import annotations

import pytest

from fleet.model.errors import InputError
from fleet.profiles.store import Query
from fleet.profiles.store.select import parse


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("", Query("")),
        ("all", Query("all")),
        ("last", Query("last", last=True)),
        ("20261120-224501-3fa9c1", Query("x", words={"run": ("20261120-224501-3fa9c1",)})),
        ("host:a,host:b", Query("x", words={"host": ("a", "b")})),
        ("tag:a, tag:b", Query("x", tags=("a", "b"))),
        ("board:host-key SHA256:x/y", Query("x", words={"board": ("host-key SHA256:x/y",)})),
        ("last,runtime:2.51.0", Query("x", last=True, words={"runtime": ("2.51.0",)})),
        (
            "since:2026-11-01,until:2026-11-30T18:00Z",
            Query("x", since="2026-11-01", until="2026-11-30T18:00"),
        ),
        ("baseline:good", Query("x", baselines=("good",))),
        ("reference:nemotron-iq9075", Query("x", reference="nemotron-iq9075")),
        ("emulated:no,counted:yes", Query("x", emulated="no", counted="yes")),
    ],
)
def test_what_is_understood(text: str, query: Query) -> None:
    found = parse(text)
    assert found.text == text.strip()
    assert Query(**{**found.__dict__, "text": query.text}) == query


@pytest.mark.parametrize(
    "text",
    [
        "colour:red", "host:", ":x", "host:a,,tag:b", "since:yesterday", "since:01.11.2026",
        "emulated:perhaps", "reference:a,host:b", "reference:a,reference:b", "last,reference:a",
        "since:2026-11-01,since:2026-11-02", "a b", "../x", "'; DROP TABLE record; --",
    ],
)  # fmt: skip
def test_what_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert text in caught.value.message
    assert caught.value.hint
