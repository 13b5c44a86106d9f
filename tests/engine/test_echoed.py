"""A board whose sudo says generated passwords back: none of them leaves fleet by any way."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

from fleet.engine.session import Session
from fleet.engine.system.become import PASSWORD, Become
from fleet.model import masking
from fleet.model.command import Command
from fleet.model.errors import BecomeError
from fleet.model.events import Event
from fleet.model.inventory import Host
from fleet.model.plain import to_plain
from fleet.model.secret import Secret
from tests.model.test_masking import generated, said, seen_as
from tests.provision.test_echoed import SUDO


@pytest.mark.parametrize("count", [5, pytest.param(1000, marks=pytest.mark.slow)])
def test_generated_passwords_that_a_board_says_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """With quotes, letters of any script, 200 characters; in plain, base64 and URL-quoted."""
    (tmp_path / "sudo").write_text(SUDO)
    (tmp_path / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("os.fsync", lambda _: None)  # of 1,000 journals
    events: list[Event] = []
    session = Session(Host("b", "local"), events.append)
    session.open()
    for number in range(count):
        value = generated(number)
        masking.forget()
        become = Become(PASSWORD, Secret(value))
        with pytest.raises(BecomeError) as refused:
            become.prove(session)
        told = become.wrap(Command(("true",)))
        done = session.run(told, "x", stdin=become.stdin(), seconds=30)
        raw = done.text + done.error_text
        assert raw.count(f"password [{value}] rejected") == 2
        error = refused.value
        shown = [str(error), repr(error), json.dumps(to_plain(error)), repr(events)]
        shown += said(raw, random.Random(number), tmp_path / str(number))
        for text, form in itertools.product(shown, seen_as(value)):
            assert form not in text, (number, form, text)
        assert masking.MASK in str(error)
    session.close()
