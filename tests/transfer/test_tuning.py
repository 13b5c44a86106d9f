"""How data is sent: words of the playbook, and those of the command line, which win."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.config.playbook_file import TUNE_WORD
from fleet.engine.deploy.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.engine.transfer.context import TransferOptions, options_of
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


@pytest.mark.parametrize(
    "word",
    ["carier=ssh", "carrier=x", "per-hub=0", "per-hub=02", "bandwidth=fast", "bandwidth=0MB/s",
     "relay=", "relay=0", "relay=maybe", "whole=nein", "whole=1", "carrier", "compress"],
)  # fmt: skip
def test_a_wrong_word_is_named(word: str) -> None:
    with pytest.raises(InputError, match=word.partition("=")[0]) as caught:
        options_of([word])
    assert caught.value.hint


@pytest.mark.parametrize("name", ["relay", "whole"])
def test_a_switch_is_what_its_word_says(name: str) -> None:
    for word, wanted in (("yes", True), ("true", True), ("on", True), ("no", False),
                         ("false", False), ("off", False)):  # fmt: skip
        assert getattr(options_of([f"{name}={word}"]), name) is wanted
    assert getattr(options_of([name]), name) is True
    assert getattr(options_of([name, f"{name}=no"]), name) is False, "the last one wins"


def test_the_playbook_and_the_command_line_take_the_same_words() -> None:
    values = ["", "auto", "ssh", "paramiko", "always", "never", "1", "0", "02", "2", "x", "50MB/s",
              "100Mbit/s", "1.5GB", "0B/s", "50 MB/s", "50  MB/s", "0.05kB", "yes", "no", "true",
              "false", "on", "off", "Yes", "maybe"]  # fmt: skip
    names = ["carrier", "bandwidth", "per-hub", "compress", "whole", "relay", "speed"]
    words = [*names, *(f"{name}={value}" for name in names for value in values)]
    for word in words:
        try:
            TUNE_WORD.check(word)
        except InputError:
            with pytest.raises(InputError):
                options_of([word])
        else:
            options_of([word])
