from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.config import yamlpos
from fleet.config.yamlpos import MAX_DEPTH, MAX_NODES, Document, Vault, parse, read
from fleet.model.errors import InventoryError, PlaybookError

FILE = Path("x.yaml")


def doc(text: str) -> Document:
    return parse(text, FILE, InventoryError)


BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)
MERGE_BOMB = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join(['*' + before] * 20)}]}}\n"
    for before, name in zip("abcdef", "bcdefg", strict=True)
)

# text, line:column, part of the message, part of the hint
BAD = [
    ("", "", "the file is empty", "fleet config schema"),
    ("# only a comment\n", "", "the file is empty", "fleet config schema"),
    ("---\n", "", "the file is empty", "fleet config schema"),
    ("- a\n", "1:1", "must be a mapping (key: value), not a list", "ansible-inventory"),
    ("\n\nfoo\n", "3:1", "not text", "ansible-inventory"),
    ("a: 1\nb: 2\na: 3\n", "3:1", "key 'a' occurs twice (the first time in line 1)", "remove"),
    ("a:\n  x: 1\n  x: 2\n", "3:3", "key 'x' occurs twice (the first time in line 2)", "one key"),
    ("a:\n\tb: 1\n", "2:1", "a tab is used for indentation", "expand -t 2 x.yaml"),
    ("a:\n  b: 1\n \tc: 2\n", "3:2", "a tab is used for indentation", "expand"),
    ("a: b: c\n", "1:5", "a line contains a second `: `", "quotes"),
    ("a:\n  b: 1\n c: 2\n", "3:2", "indentation does not match", "equally"),
    ("a: 'x\nb: 1\n", "1:4", "a quote is opened but not closed", "close the quote"),
    ("a: [1, 2\nb: 3\n", "2:2", "a { or [ is opened but not closed", "add the }"),
    ('a: "\\q"\n', "1:6", "a backslash in double quotes", "single quotes"),
    ("a: @x\n", "1:4", "a value cannot start with this character", "in quotes"),
    ("a: {{ x }}\n", "1:5", "a key must be plain text", "in quotes"),
    ("a: *x\n", "1:4", "alias *x is used before its anchor &x", "define &x first"),
    (
        "a: &x [*x]\n",
        "1:8",
        "alias *x refers to an anchor that contains the alias",
        "another anchor",
    ),
    ("a: 1\n---\nb: 2\n", "2:1", "contains a second YAML document", "`---`"),
    ("a: !!python/object/apply:os.system [x]\n", "1:4", "it would run Python code", "remove"),
    ("a: !!python/name:os.system\n", "1:4", "it would run Python code", "remove"),
    (
        "a: !foo x\n",
        "1:4",
        "fleet does not accept the YAML tag !foo: fleet does not know",
        "remove",
    ),
    ("a: !!set {x, y}\n", "1:4", "does not accept the YAML tag !!set", "remove"),
    ("!foo a: 1\n", "1:1", "does not accept the YAML tag !foo", "remove"),
    ("a: !!int x\n", "1:4", "does not fit the YAML tag !!int", "quotes"),
    ("'': 1\n", "1:1", "the key before the colon is empty", "write a key"),
    ("<<: 3\n", "1:5", "must be an alias of a mapping", "<<: *name"),
    ("a: 1\nb: x\x07\n", "2:5", "a control character", "remove"),
    ("[evks]\nevk1 ansible_host=1\n", "2:1", "INI inventory", "ansible-inventory"),
    ("a: " + "[" * 5000, f"1:{3 + MAX_DEPTH}", f"than {MAX_DEPTH} levels deep", "fewer levels"),
    (BOMB, "1:14", f"beyond {MAX_NODES} values", "aliases"),
    (MERGE_BOMB, "1:8", f"beyond {MAX_NODES} values", "aliases"),
]


@pytest.mark.parametrize(("text", "place", "message", "hint"), BAD)
def test_refused(text: str, place: str, message: str, hint: str) -> None:
    with pytest.raises(InventoryError) as caught:
        doc(text)
    error = caught.value
    expected = ":".join(part for part in ("x.yaml", place) if part)
    if "beyond" in message:  # where the limit falls is no promise
        expected = str(error.position)
    assert str(error.position) == expected
    assert message in error.message
    assert hint in error.hint


def test_messages_do_not_quote_the_file() -> None:
    for text in ("password: 'hunter2\n", "a: b: hunter2\n", "x: [hunter2\n", "a:\n\tp: hunter2\n"):
        with pytest.raises(InventoryError) as caught:
            doc(text)
        shown = "".join(traceback.format_exception(caught.value, limit=0))
        assert "hunter2" not in shown + caught.value.hint + repr(caught.value)


DATA = [
    ("a: 007", "007"),
    ("a: 12:30:45", "12:30:45"),
    ("a: 2024-01-02", "2024-01-02"),
    ("a: 0", 0),
    ("a: -7", -7),
    ("a: 2.50", 2.5),
    ("a: yes", True),
    ("a: 'yes'", "yes"),
    ("a: !!str 12", "12"),
    ("a: ! 12", "12"),
    ("a: !unsafe 'x{{'", "x{{"),
    ("a: !unsafe [1]", [1]),
    ("a: ~", None),
    ("a: |\n  x\n  y\n", "x\ny\n"),
    ("b: &b {x: 1}\na: {<<: *b, y: 2}", {"y": 2, "x": 1}),
    ("b: &b {x: 1}\nc: &c {x: 2, z: 3}\na: {<<: [*b, *c], x: 9}", {"x": 9, "z": 3}),
    ("b: &b {x: 1, w: 2}\nc: &c {x: 2}\na: {<<: [*b, *c]}", {"x": 1, "w": 2}),
    ("b: &b [1]\na: [*b, *b]", [[1], [1]]),
]


@pytest.mark.parametrize(("text", "value"), DATA)
def test_values(text: str, value: object) -> None:
    got = doc(text).data["a"]
    assert got == value
    assert type(got) is type(value)


def test_keys_are_the_text_of_the_file() -> None:
    assert list(doc("yes: 1\n01: 2\n1: 3\n2024-01-01: 4\n~: 5\n").data) == [
        "yes",
        "01",
        "1",
        "2024-01-01",
        "~",
    ]


def test_vault_loads_and_shows_nothing() -> None:
    value = doc("a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n").data["a"]
    assert isinstance(value, Vault)
    assert "6162" not in f"{value!r}{value}"


def test_windows_line_ends() -> None:
    found = doc("a:\r\n  b: 1\r\n")
    assert found.data == {"a": {"b": 1}}
    assert str(found.value(("a", "b"))) == "x.yaml:2:6"


def test_positions() -> None:
    found = doc("a:\n  b: [x,  y]\n  'c':   {d: 1}\n")
    assert str(found.key(("a", "b"))) == "x.yaml:2:3"
    assert str(found.value(("a", "b", 1))) == "x.yaml:2:11"
    assert str(found.key(("a", "b", 1))) == "x.yaml:2:11"
    assert str(found.value(("a", "c", "d"))) == "x.yaml:3:14"
    assert str(found.value(("a", "c", "unknown", "deeper"))) == "x.yaml:3:10"
    assert found.text(("a", "c", "d")) == "1"
    assert found.text(("a",)) == ""


def test_merged_keys_keep_the_place_where_they_stand() -> None:
    found = doc("b: &b\n  x: 1\na:\n  <<: *b\n  y: 2\n")
    assert str(found.value(("a", "x"))) == "x.yaml:2:6"


def test_read_names_the_file_that_is_near(tmp_path: Path) -> None:
    (tmp_path / "evks.yaml").write_text("a: 1")
    with pytest.raises(PlaybookError, match="does not exist") as caught:
        read(tmp_path / "evk.yaml", PlaybookError)
    assert caught.value.hint == f"did you mean {tmp_path / 'evks.yaml'}?"
    with pytest.raises(PlaybookError, match="is a folder"):
        read(tmp_path, PlaybookError)
    with pytest.raises(PlaybookError, match="does not exist"):
        read(tmp_path / "no" / "evk.yaml", PlaybookError)


def test_read_refuses_what_is_no_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nname: M\xfcller\n")
    with pytest.raises(InventoryError, match=r"not UTF-8 \(byte 0xfc\)") as caught:
        read(path, InventoryError)
    assert str(caught.value.position) == f"{path}:2:8"
    path.write_text("ä: ü\n", encoding="utf-16")
    with pytest.raises(InventoryError, match="not UTF-8"):
        read(path, InventoryError)
    path.write_text("ä: ü\n", encoding="utf-8-sig")
    assert read(path, InventoryError).data == {"ä": "ü"}
    assert str(read(path, InventoryError).key(("ä",))) == f"{path}:1:1"


def test_read_refuses_large_files(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"#" * (yamlpos.MAX_BYTES + 1))
    with pytest.raises(InventoryError, match="larger than 4 MB"):
        read(path, InventoryError)


def test_both_parsers_of_pyyaml_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a:\n  - b: 'ü'   # c\n    c: !unsafe x\n  - &k {x: 1}\nd:\n  <<: *k\n  e: |\n    f\n"
    fast = doc(text)
    monkeypatch.setattr(yaml, "CSafeLoader", yaml.SafeLoader, raising=False)
    slow = doc(text)
    assert fast == slow


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text("abcä x:#-{}", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcü", min_size=1), inner),
    max_leaves=12,
)


@settings(max_examples=60)
@given(st.dictionaries(st.text("abcxyz", min_size=1), PLAIN, min_size=1), st.booleans())
def test_dumped_data_comes_back_with_positions_that_point_at_it(
    data: dict[str, object], flow: bool
) -> None:
    text = yaml.safe_dump(data, allow_unicode=True, default_flow_style=flow, width=10_000)
    found = doc(text)
    assert found.data == data
    lines = text.split("\n")
    for path, (line, column) in found.keys.items():
        rest = lines[line - 1][column - 1 :].lstrip("? '\"")
        assert rest.startswith(str(path[-1]))
