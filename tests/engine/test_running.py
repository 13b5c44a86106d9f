"""What a run printed, kept and passed on."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet.engine.deploy.plan import _then
from fleet.engine.run.run import Tee
from fleet.engine.session import Session
from fleet.model.errors import WorkstationError
from fleet.model.events import Event, Output
from fleet.model.inventory import Host
from fleet.model.playbook import RunSpec
from fleet.model.secret import Secret


def test_a_listener_that_is_gone_is_no_disk_that_is_full(tmp_path: Path) -> None:
    """`fleet run --json | head`: the last piece waits in the mask until the end."""

    def closed(_: Event) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    Secret("hunter22").reveal()
    session = Session(Host("evk"), closed)
    path = tmp_path / "stdout.log"
    tee = Tee(path, session, "stdout")
    with pytest.raises(BrokenPipeError), closing(tee):
        tee.take(b"hunt")
    assert tee._file.closed
    assert path.read_bytes() == b"hunt"


def test_what_cannot_be_written_at_the_end_is_the_workstations() -> None:
    heard: list[Event] = []
    session = Session(Host("evk"), heard.append)
    tee = Tee(Path("/dev/full"), session, "stdout")
    with (
        pytest.raises(
            WorkstationError, match="cannot write /dev/full on this workstation: No space left"
        ),
        closing(tee),
    ):
        tee.take(b"text")
    assert heard == [Output("evk", "stdout", "text")]


@pytest.mark.parametrize(
    ("prompt", "said"), [("What is fleet?\n", "15 bytes, 1 line;"), ("a\nb", "3 bytes, 2 lines;")]
)
def test_a_newline_at_the_end_is_no_line_of_the_prompt(prompt: str, said: str) -> None:
    builder = SimpleNamespace(playbook=SimpleNamespace(run=RunSpec(prompt=prompt)))
    assert said in _then(builder)[0]  # type: ignore[arg-type]
