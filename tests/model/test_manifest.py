"""A manifest that comes back from a device: trusted as far as its hash goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.model.files import FileRef
from fleet.model.manifest import Manifest, read_manifest
from fleet.model.plain import to_plain

HERE = FileRef(Path("/host/a"), "bundle/a", 3, "a" * 64)
MADE = Manifest("tiny", (HERE,), {"A": "{release}/a"}, ("B",), {"kind": "files"})


def _text(**changes: Any) -> str:
    return json.dumps({**to_plain(MADE), **changes})


def test_the_whole_manifest_comes_back_without_host_paths() -> None:
    found = read_manifest(_text(), "tiny", MADE.id, whole=True)
    assert (found.id, to_plain(found)) == (MADE.id, to_plain(MADE))
    assert found.files[0].source == Path()


def test_without_its_files_it_keeps_the_id_that_was_asked_for() -> None:
    found = read_manifest(_text(files=[]), "tiny", "0" * 16)
    assert (found.id, found.files, found.env) == ("0" * 16, (), MADE.env)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, _text(env=["A"]), _text(unset=None), _text(name="other")]
)
def test_what_is_damaged_or_of_another_name_is_refused(text: str, whole: bool) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_manifest(text, "tiny", MADE.id, whole=whole)


@pytest.mark.parametrize(
    "changes",
    [{"env": {}}, {"files": [{**to_plain(MADE)["files"][0], "name": "../../etc/passwd"}]}],
)
def test_the_whole_manifest_must_be_that_of_its_id(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"another release|name of a file"):
        read_manifest(_text(**changes), "tiny", MADE.id, whole=True)
