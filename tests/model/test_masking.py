"""Revealed secrets are masked where text leaves fleet, and only where they are."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.cli import output
from fleet.device.shell import framed, odd_answer
from fleet.doctor.redaction import Redactor
from fleet.engine.rollout.inputs import Inputs
from fleet.engine.rollout.journal import Journal
from fleet.engine.rollout.lines import RollingLine, RunHeader
from fleet.model import masking
from fleet.model.errors import DeviceError, InputError, Position
from fleet.model.events import Output, RunDone, StepStarted
from fleet.model.facts import Facts, Soc, User
from fleet.model.masking import StreamMasker, masked, masked_data, publish
from fleet.model.plain import to_plain
from fleet.model.secret import Secret, SecretRef, resolve
from fleet.model.text import harmless
from fleet.profiles.compare.conditions import options, system
from tests.profiles.records import record

CANARY = "canary-7f3a"


def revealed(value: str) -> None:
    assert Secret(value).reveal() == value


@pytest.mark.parametrize("value", [CANARY, "a(b|*", "pass word", "naïve-ß", "1234"])
def test_a_revealed_value_is_masked(value: str) -> None:
    text = f"pam_debug: password [{value}] rejected; {value}{value}"
    assert masked(text) == text, "nobody has seen it yet"
    revealed(value)
    assert masked(text) == "pam_debug: password [***] rejected; ******"


def test_one_that_is_a_part_of_another_leaves_no_rest() -> None:
    revealed("secret-word")
    revealed("secret-word-and-more")
    assert masked("x secret-word-and-more y secret-word") == "x *** y ***"


def test_the_end_of_a_line_of_windows_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "pw").write_bytes(f"{CANARY}\r\n".encode())
    resolve("file:pw", tmp_path).reveal()
    assert masked(f"[{CANARY}]") == "[***]"


def test_a_short_one_is_refused_where_it_comes_in(tmp_path: Path) -> None:
    """Masked in the middle of words it would spoil every text: `no` is in `noah`."""
    (tmp_path / "pw").write_text("abc\n")
    at = Position(tmp_path / "inventory.yaml", 4, 17)
    with pytest.raises(InputError, match="'file:pw' has fewer than 4 characters") as caught:
        SecretRef("file:pw", tmp_path, position=at).get()
    assert str(caught.value).startswith(f"{at}: ")
    assert "identity_file" in caught.value.hint
    assert "abc" not in str(caught.value)
    revealed("")
    assert masked("an empty one is none") == "an empty one is none"


def test_a_name_of_the_inventory_that_holds_one_stays_a_name() -> None:
    """With the password `ubuntu`, `fleet trust ubuntu-01` is a command that can be pasted."""
    publish(["ubuntu-01", "/home/ubuntu/evks.yaml"])
    revealed("ubuntu")
    hint = "fleet trust ubuntu-01 -i /home/ubuntu/evks.yaml; then fleet facts -l 'ubuntu-01,x'"
    assert masked(hint) == hint
    assert masked("ubuntu ubuntu-012 my-ubuntu-01 ubuntu-01.") == "*** ***-012 my-***-01 ubuntu-01."
    assert masked_data({"text": "of ubuntu-01: ubuntu"}) == {"text": "of ubuntu-01: ***"}


def test_one_that_is_a_name_of_the_inventory_is_refused(tmp_path: Path) -> None:
    publish(["evk-07"])
    with pytest.raises(
        InputError, match="name of a host; fleet prints names of hosts, so the output"
    ) as caught:
        SecretRef("literal", tmp_path, Secret("evk-07")).get()
    assert "rename the host" in caught.value.hint
    revealed("evk-07")
    assert masked("password [evk-07] of evk-07") == "password [***] of ***", "however it came in"


WORDS = "abcXYZ0189 '\"`\\$%&+/=?#[]{}()<>|;:,.~^*!@-_\tßéñ€漢字🔑\u0301\x7f"


def generated(number: int) -> str:
    """The secrets of the property test: 4 to 200 characters."""
    source = random.Random(number)
    size = 200 if number % 5 == 0 else source.randint(4, 24)
    return "".join(source.choice(WORDS) for _ in range(size)).strip().ljust(4, "x")


def echoes(value: str, source: random.Random) -> list[str]:
    """What a board may say of it, by other means than those of the redactor."""
    raw = value.encode()
    around = [bytes(source.randbytes(n)) + raw + bytes(source.randbytes(n)) for n in range(4)]
    spoken = [base64.b64encode(text).decode() for text in around]
    spoken += [base64.urlsafe_b64encode(text).decode() for text in around]
    spoken += ["".join(f"%{byte:02x}" for byte in raw), urllib.parse.quote(value, safe="")]
    spoken += [urllib.parse.quote_plus(value), urllib.parse.urlencode({"p": value})]
    spoken += [*dumps(raw)]
    return [value, *spoken, json.dumps({"p": value}), repr(value), f"'{value}'"]


def dumps(raw: bytes) -> list[str]:
    """As `xxd -p`, `od -An -tx1`, `hexdump -C`, `xxd` (from either byte of a pair) and sh print it,
    on one line.
    """
    bytewise = [f"{byte:02x}" for byte in raw]
    pairs = [raw[at : at + 2].hex() for at in range(0, len(raw), 2)]
    odd = [raw[:1].hex(), *(raw[at : at + 2].hex() for at in range(1, len(raw), 2))]
    spoken = [mark.join(bytewise) for mark in ("", " ", ":", "-")]
    spoken += [" ".join(pairs), " ".join(odd), "".join(f"\\x{byte}" for byte in bytewise)]
    return [*spoken, *(text.upper() for text in spoken[:3])]


def test_a_password_as_hexadecimal_digits_is_masked() -> None:
    revealed(CANARY)
    for text in dumps(CANARY.encode()):
        assert masked(f"00 {text} 0a") == "00 *** 0a"


def said(text: str, source: random.Random, folder: Path) -> Iterator[str]:
    """The text by every way out."""
    error = DeviceError(text, hint=f"try {text}", device="b")
    yield from (str(error), error.hint, repr(error), json.dumps(to_plain(error)))
    yield from (repr(Output("b", "stdout", text)), repr(RunDone("b", {"problems": [text]})))
    yield from (harmless(text), json.dumps(masked_data({"a": [{"text": text}]})))
    yield Redactor().text(harmless(text))
    raw, at, stream = text.encode(), 0, StreamMasker()
    found = b""
    while at < len(raw):
        size = source.choice((1, 2, 7, 64))
        found, at = found + stream.take(raw[at : at + size]), at + size
    yield (found + stream.end()).decode("utf-8", "replace")
    journal = Journal.begin(folder / "journal.jsonl", RunHeader(run="r", waves=()))
    journal.write(RollingLine(text=text))
    journal.close()
    yield (folder / "journal.jsonl").read_text("utf-8")


@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_generated_secrets_appear_nowhere(
    hundred: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of 1,000 journals
    for number in range(100 * hundred, 100 * hundred + 100):
        value, source = generated(number), random.Random(number)
        masking.forget()
        revealed(value)
        parts = echoes(value, source)
        shown = list(
            said("pam_debug: [" + "] [".join(parts) + "] end", source, tmp_path / str(number))
        )
        for text, form in itertools.product(shown, seen_as(value)):
            assert form not in text, (number, form, text)
        assert all("pam_debug: [" in text and "] end" in text for text in shown)


def seen_as(value: str) -> set[str]:
    raw = value.encode()
    inner = [base64.b64encode(bytes(n) + raw)[4 if n else 0 : -4].decode() for n in range(3)]
    quoted = urllib.parse.quote(value, safe="")
    escaped = {json.dumps(value)[1:-1], repr(value)[1:-1]}
    return {value, quoted, *escaped, *dumps(raw), *(part for part in inner if len(part) >= 4)}


def test_errors_events_lines_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    revealed(CANARY)
    error = DeviceError(f"sudo: {CANARY}", hint=f"not {CANARY}", device="b")
    heard = Output("b", "stderr", f"it was {CANARY}")
    run = RunDone("b", {"text": CANARY, "facts": {"remoteproc": [CANARY]}, "host": "b"})
    output.say(f"said {CANARY[:5]}\x1b[1m{CANARY[5:]}")
    output.note(CANARY)
    output.table("t", ["c"], [[CANARY]])
    output.show_error(error)
    output.emit_json({"deep": [{"text": CANARY}], "path": Path(CANARY)})
    output.emit_line(to_plain(heard))
    shown = capsys.readouterr()
    texts = [str(error), repr(error), json.dumps(to_plain(error)), str(heard), str(run)]
    for text in (*texts, shown.out, shown.err, harmless(CANARY)):
        assert CANARY not in text
        assert masking.MASK in text


def test_names_and_hashes_of_ours_are_what_they_are() -> None:
    """A password that is also a name would make a journal or a record useless."""
    revealed("ubuntu")
    data = {"host": "ubuntu-1", "files": {"ubuntu.bin": "ab"}, "text": "of ubuntu-1", "n": 1}
    nested = {"devices": [{"host": "ubuntu-1", "text": "ubuntu"}], "commands": [["x", "ubuntu"]]}
    assert masked_data(nested) == {**nested, "devices": [{"host": "ubuntu-1", "text": "***"}]}
    assert masked_data(data) == {**data, "text": "of ***-1"}
    assert StepStarted("ubuntu-1", "send", "to ubuntu-1").host == "ubuntu-1"


def test_what_runs_are_compared_by_is_no_mask() -> None:
    """Read from os-release, uname and the kernel: with another login it is the same system."""
    facts = Facts(
        hostname="ubuntu-1",
        os_id="ubuntu",
        os_version="24.04",
        kernel="6.8.0-1-ubuntu",
        soc=Soc(chip="QCS9075", machine="ubuntu"),
        user=User("ubuntu", 1000, "/home/ubuntu", ("ubuntu",)),
        base_dir="/home/ubuntu/.fleet",
        remoteproc=(("ubuntu", "up"),),
    )
    run = record(facts=to_plain(facts), text="ubuntu", env={"LD": "/home/ubuntu/.fleet/lib"})
    revealed("ubuntu")
    kept = masked_data(run)
    wanted = {**to_plain(facts), "hostname": "***-1", "remoteproc": [["***", "up"]]}
    assert kept.facts == wanted
    assert system(kept) == "ubuntu 24.04 6.8.0-1-ubuntu"
    assert options(kept) == options(run)
    assert kept.text == "***"
    assert masked_data({"facts": to_plain(facts)}) == {"facts": wanted}
    assert to_plain(masked_data({"facts": facts})["facts"]) == wanted
    assert masked_data({"os_id": "ubuntu"}) == {"os_id": "***"}, "anywhere else it is masked"


def test_the_journal_has_none(tmp_path: Path) -> None:
    revealed("ubuntu")
    path = tmp_path / "runs" / "r" / "journal.jsonl"
    inputs = Inputs(Path("/home/ubuntu/p"), Path("/i"))
    journal = Journal.begin(path, RunHeader(run="r", waves=(), inputs=inputs))
    journal.write(RollingLine(text="sudo: [ubuntu] rejected"))
    journal.close()
    first, last = map(json.loads, path.read_text().splitlines())
    assert first["inputs"]["playbook"] == "/home/ubuntu/p"
    assert last["text"] == "sudo: [***] rejected"


def test_a_text_that_is_cut_shows_no_half() -> None:
    revealed(CANARY)
    with pytest.raises(DeviceError) as caught:
        framed(f"{CANARY}{'x' * 195}", "fleet-state 1", "b")
    assert "7f3a" not in caught.value.message
    assert "canary" not in odd_answer("x" * 190 + CANARY, "b").message


@pytest.mark.parametrize("size", range(1, 20))
def test_a_stream_with_one_that_begins_like_another(size: int) -> None:
    revealed("hunter")
    revealed("hunter22secret")
    revealed("ret x")
    data = b"pw hunter22secret x hunter hunter22secre hunter22secret"
    stream, found = StreamMasker(), b""
    for at in range(0, len(data), size):
        found += stream.take(data[at : at + size])
    assert found + stream.end() == masked(data.decode()).encode()


@pytest.mark.parametrize("size", range(1, 30))
def test_a_stream_in_pieces_of_any_size(size: int) -> None:
    revealed(CANARY)
    data = f"cana {CANARY} can{CANARY}{CANARY[:-1]} end canary-".encode()
    stream, found = StreamMasker(), b""
    for at in range(0, len(data), size):
        found += stream.take(data[at : at + size])
    found += stream.end()
    assert found == masked(data.decode()).encode()
    assert CANARY.encode() not in found
