"""Secrets: three ways to find one, no way to print one."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fleet.model.errors import InputError
from fleet.model.secret import Secret, SecretRef, resolve

CANARY = "canary-7f3a"


def test_no_way_to_text_shows_it() -> None:
    secret = Secret(CANARY)
    ref = SecretRef("literal", Path(), secret)
    shown = [str(secret), repr(secret), f"{secret}", f"{secret:>20}", "%s" % secret, repr(ref)]  # noqa: UP031
    shown += [str([secret]), str({"a": ref}), "{}".format(secret)]  # noqa: UP032
    assert not any(CANARY in text for text in shown)
    assert secret.reveal() == CANARY


def test_a_secret_is_never_pickled() -> None:
    with pytest.raises(TypeError, match="never pickled") as caught:
        pickle.dumps(Secret(CANARY))
    assert CANARY not in str(caught.value)


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEET_TEST_SECRET", CANARY)
    assert resolve("env:FLEET_TEST_SECRET", tmp_path).reveal() == CANARY
    monkeypatch.delenv("FLEET_TEST_SECRET")
    with pytest.raises(InputError, match=r"FLEET_TEST_SECRET for the password is not set"):
        resolve("env:FLEET_TEST_SECRET", tmp_path)


def test_from_a_file_relative_to_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text(CANARY + "\nsecond line\n")
    assert resolve("file:pw", tmp_path).reveal() == CANARY
    assert resolve(f"file:{tmp_path}/pw", Path("/")).reveal() == CANARY
    with pytest.raises(InputError, match="cannot read the password from the file"):
        resolve("file:none", tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError):
        resolve("file:bytes", tmp_path)


def test_from_a_program(tmp_path: Path) -> None:
    assert resolve(f"cmd:printf '{CANARY}\\nmore'", tmp_path).reveal() == CANARY


@pytest.mark.parametrize(
    "command", ["false", "no-such-program-here", "sh -c 'echo canary-7f3a; exit 3'", "'unclosed"]
)
def test_a_program_that_fails_is_named_and_its_output_is_not(command: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the password from the command") as caught:
        resolve(f"cmd:{command}", tmp_path)
    assert "by hand" in caught.value.hint
    if "canary" not in command:
        assert CANARY not in str(caught.value)


def test_a_program_is_no_shell(tmp_path: Path) -> None:
    assert resolve("cmd:echo $HOME;id", tmp_path).reveal() == "$HOME;id"


@pytest.mark.parametrize("text", ["plain", "", "env:", "file:", "cmd:", "vault:x"])
def test_a_value_in_clear_text_is_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a reference") as caught:
        resolve(text, tmp_path)
    assert not text or text not in caught.value.message
