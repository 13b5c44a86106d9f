"""The prompt of a health probe reaches a program that reads it from a file.

On a board behind a real sshd, by the argv of the runner itself. The program fails on an empty
file, and ends, as llama-completion of Debian was seen to do (`E input is empty`, status 255).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fleet.config.playbook import load_playbook
from fleet.device.texts import text_of
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.engine.deploy.switch import check_health
from fleet.engine.session import Session
from fleet.model.manifest import Manifest
from fleet.ops.release import release_dir
from fleet.runners.registry import OWN
from fleet.runtimes.targets import default_target
from tests.runners.kits import gguf
from tests.runners.test_others import KITS, llama

from .conftest import Bench

READS_A_FILE = """#!/bin/sh
if [ "$1" = --help ]; then echo ' -no-cnv'; exit; fi
{{ cat; }} > {heard}.stdin
for word; do
  case $word in
    */prompt.txt) file=$word ;;
    -no-cnv | --prompt_file) asked=yes ;;
  esac
done
if [ ! -s "$file" ]; then
  echo "0.00.269.793 E input is empty" >&2
  exit 255
fi
cp "$file" {heard}
"""
LLAMA = """
name: text
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-completion, prompt: "What is fleet?", max_tokens: 4}
"""


@pytest.fixture
def session(bench: Bench) -> Iterator[Session]:
    with_board = Session(bench.host, bench.events.append)
    with_board.open()
    yield with_board
    with_board.close()


def genie(bench: Bench, _: Path) -> tuple[Manifest, str]:
    """A runtime with genie-t2t-run, which no wheel has: of it only the program is there."""
    table = ReleaseBuilder(bench.playbook, bench.store, bench.events.append, offline=True)
    target = default_target("linux", "x86_64")
    assert target is not None
    parts = table.parts(target, "v73")
    parts = replace(parts, selection=replace(parts.selection, has_tool=True))
    return table.manifest(parts), "bin/genie-t2t-run"


def llama_cpp(bench: Bench, folder: Path) -> tuple[Manifest, str]:
    (folder / "bundle").mkdir()
    (folder / "bundle" / "model.gguf").write_bytes(gguf())
    (folder / "llama-completion").write_text("program")
    (folder / "playbook.yaml").write_text(LLAMA)
    table = ReleaseBuilder(
        load_playbook(folder / "playbook.yaml"), bench.store, bench.events.append, offline=True
    )
    return table.manifest(table.parts("x86_64-linux-clang", None)), "bin/llama-completion"


MADE: dict[str, Callable[[Bench, Path], tuple[Manifest, str]]] = {
    "genie": genie,
    "llama.cpp": llama_cpp,
}


@pytest.mark.qairt
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("stored", [False, True], ids=["deployed", "rolled back"])
def test_the_prompt_of_a_probe_is_in_the_file(
    bench: Bench, session: Session, tmp_path: Path, name: str, stored: bool
) -> None:
    manifest, program = MADE[name](bench, tmp_path)
    if stored:  # as a rollback finds it on the device
        manifest = structs.replace(manifest, origin=json.loads(json.dumps(manifest.origin)))
    heard = tmp_path / "heard"
    place = Path(release_dir(str(bench.base), manifest.name, manifest.id), program)
    place.parent.mkdir(parents=True)
    (place.parents[1] / "bundle").mkdir()
    (place.parents[1] / "run").mkdir()
    (place.parents[1] / "run" / "t2t_run.sh").write_text(text_of("t2t_run.sh"))
    place.write_text(READS_A_FILE.format(heard=heard))
    place.chmod(0o755)
    check_health(session, manifest, str(bench.base), "20261123-000000-abcdef")
    assert heard.read_text() == "hi"
    assert Path(f"{heard}.stdin").read_bytes() == b"", "it is not on standard input as well"


@pytest.mark.qairt
def test_what_was_stored_before_still_feeds_standard_input(
    bench: Bench, session: Session, tmp_path: Path
) -> None:
    """Of a release of an older fleet: a prompt in its manifest was always one for stdin."""
    health = {"argv": ["/bin/sh", "-c", f"cat > {tmp_path}/heard"], "cwd": "", "config": ""}
    manifest = Manifest("old", (), {}, (), {"health": {**health, "timeout": 9.0, "prompt": "hi\n"}})
    Path(release_dir(str(bench.base), "old", manifest.id)).mkdir(parents=True)
    check_health(session, manifest, str(bench.base), "20261123-000000-abcdef")
    assert (tmp_path / "heard").read_text() == "hi\n"


def test_these_are_all_that_read_a_file() -> None:
    """Of the runners of ours; a new one that does belongs into MADE."""
    kits = {**KITS, "llama.cpp": llama("llama-completion")}
    found = {
        name
        for name, one in kits.items()
        if any("prompt.txt" in word for word in OWN[name].start(one).argv)
    }
    assert found | {"genie"} == set(MADE)
