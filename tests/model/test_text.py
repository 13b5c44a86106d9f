"""Text of devices on a terminal and in JSON: nothing unseen, nothing that turns the direction."""

from __future__ import annotations

import json
import os

import pytest

from fleet.model.deadline import Deadline
from fleet.model.text import harmless, harmless_json, visible

UNSEEN = [0x61C, 0x85, 0x9C, 0x200B, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F)]
UNSEEN += [*range(0x2066, 0x206A), 0xFEFF]


@pytest.mark.parametrize("code", UNSEEN, ids=hex)
def test_what_is_not_seen_is_not_printed_and_is_escaped_in_json(code: int) -> None:
    text = f"a{chr(code)}b"
    assert harmless(text) == "ab"
    shown = harmless_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert chr(code) not in shown
    assert json.loads(shown) == {text: [text]}
    assert visible(text) == "a" + text[1].encode("unicode_escape").decode() + "b"


def test_letters_of_all_scripts_stay() -> None:
    text = "dé שלום 模型 \N{GRINNING FACE}"
    assert harmless(text) == visible(text) == harmless_json(text) == text


def test_a_byte_that_is_no_text_is_shown_and_can_be_printed_as_json() -> None:
    name = os.fsdecode(b"bad\xffutf\n")
    assert visible(name) == r"bad\xffutf\n"
    shown = harmless_json(json.dumps(name, ensure_ascii=False))
    assert shown.encode("utf-8")
    assert json.loads(shown) == name


def test_a_message_has_the_seconds_that_were_waited_for() -> None:
    """A deadline that ends early, as with a lease, was not waited for to its end."""
    assert float(Deadline(60.9437).waited) < 60
    assert Deadline(0).waited == "0"
