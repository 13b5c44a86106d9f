"""How data is sent: words of the playbook, and those of the command line, which win."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.engine.transfer.context import TransferOptions
from fleet.engine.transfer.tuning import options_of
from fleet.model.errors import InputError


def test_the_playbook_says_it_and_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    path = tmp_path / "p.yaml"
    words = "carrier=ssh, bandwidth=50MB/s, per-hub=2, compress=never, whole, relay"
    path.write_text(
        f"name: n\nbundle: {{path: bundle, kind: files}}\nstrategy: {{tune: [{words}]}}\n"
    )
    playbook = load_playbook(path)
    wanted = TransferOptions("ssh", 50e6, 2, True, "never", True)
    assert Operation(playbook, [], lambda _: None).transfer.options == wanted
    typed = options_of([*playbook.tune, "carrier=paramiko"])
    assert typed.carrier == "paramiko"
    how = DeployOptions(transfer=typed)
    assert Operation(playbook, [], lambda _: None, options=how).transfer.options == typed


@pytest.mark.parametrize("word", ["carier=ssh", "carrier=x", "per-hub=0", "bandwidth=fast"])
def test_a_wrong_word_is_named(word: str) -> None:
    with pytest.raises(InputError, match=word.partition("=")[0]):
        options_of([word])
