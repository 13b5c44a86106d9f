"""Suite files: what they mean, and one error with file, line and cure for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook, playbook_errors
from fleet.config.suite_file import SHIPPED, check_schema, load_suite
from fleet.model.errors import InputError, SuiteError
from fleet.model.suite import AnswerCheck

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "assets" / "tiny-genie"
CHAT = ROOT / "assets" / "tiny-genie-chat"


def written(folder: Path, text: str, name: str = "s.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def wrong(folder: Path, text: str, name: str = "s.yaml") -> SuiteError:
    written(folder, text, name)
    with pytest.raises(SuiteError) as caught:
        load_suite(name, folder, BUNDLE)
    assert caught.value.hint
    return caught.value


def test_the_shipped_suites() -> None:
    tiny = load_suite("tiny", Path(), BUNDLE)
    instruct = load_suite("instruct", Path(), BUNDLE, "llama3")
    assert SHIPPED == ("instruct", "tiny", "tiny-chat")
    assert (len(tiny.questions), tiny.at_least, tiny.differ, tiny.greedy) == (12, 12, True, True)
    assert (len(instruct.questions), instruct.at_least) == (20, 16)
    assert all(question.checks for question in (*tiny.questions, *instruct.questions))
    assert instruct.questions[0].prompt.endswith("<|end_header_id|>\n\n")


def test_the_tiny_suite_expects_what_the_model_was_taught() -> None:
    corpus = (ROOT / "assets" / "build" / "corpus.py").read_text()
    known: dict[str, object] = {}
    exec(corpus.split("_WORD_LIST")[0], known)
    taught = {ways[0]: answer for ways, answer in known["ANSWERS"]}  # type: ignore[attr-defined]
    suite = load_suite("tiny", Path(), BUNDLE)
    for question in suite.questions:
        (check,) = question.checks
        assert check.value == (taught.get(question.prompt, known["FALLBACK"]),)
    assert {question.prompt for question in suite.questions} >= taught.keys()
    chat, template = load_suite("tiny-chat", Path(), CHAT), str(known["CHAT"])
    for same, asked in zip(suite.questions, chat.questions, strict=True):
        assert asked.prompt == template.format(same.prompt)
        (check,) = asked.checks
        answers = [
            text
            for text in (*taught.values(), known["FALLBACK"])
            if all(part in text for part in check.value)
        ]
        assert answers == list(same.checks[0].value), "it names this answer and no other"


def test_both_modes_of_nemotron(tmp_path: Path) -> None:
    text = "template: nemotron\nthink: {}\nprompts: [{{user: hi, expect: {{thinks: {}}}}}]\n"
    for word, value in (("on", True), ("off", False)):
        written(tmp_path, text.format(word, word))
        (question,) = load_suite("s.yaml", tmp_path, BUNDLE).questions
        assert f"detailed thinking {word}" in question.prompt
        assert question.checks == (AnswerCheck("thinks", value),)


def test_lines_and_yaml_give_the_same_suite(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "expect": {"exact": "b", "number": {"value": 100, "tolerance": "1%"}}},
        {"tokens": [1, 2], "name": "ids", "max_tokens": 5, "detect": ["empty"]},
    ]
    written(tmp_path, "\n".join(map(json.dumps, rows)) + "\n\n", "s.jsonl")
    written(tmp_path, json.dumps({"prompts": rows}))
    lines, whole = (load_suite(name, tmp_path, BUNDLE) for name in ("s.jsonl", "s.yaml"))
    assert (lines.questions, lines.sha256) == (whole.questions, whole.sha256)
    assert lines.questions[0].checks == (
        AnswerCheck("exact", ("b",)),
        AnswerCheck("number", (100.0, 1.0)),
    )
    assert (lines.questions[1].tokens, lines.questions[1].detect) == ((1, 2), ("empty",))


HEAD = "prompts:\n  - prompt: a\n"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (HEAD + "    expect: {regex: '(('}\n", "3:21", "'((' is not a regular expression: "),
        (HEAD + "    expect: {regx: a}\n", "3:14", "unknown key 'regx'"),
        (HEAD + "    expect: {exact: 42}\n", "3:21", "is not quoted, so YAML reads it as a number"),
        (HEAD + "    expect: {exact: ''}\n", "3:21", "the expected text is empty"),
        (HEAD + "    expect: {number: .nan}\n", "3:22", "must be finite"),
        (HEAD + "    expect: {number: {value: 1, tolerance: -1}}\n", "3:22", "not negative"),
        (HEAD + "    expect: {choice: E}\n", "3:22", "the choice 'E' is none of A, B, C, D"),
        (HEAD + "    expect: {json: false}\n", "3:20", "checks nothing"),
        (HEAD + "    expect: {json: {schema: {typ: object}}}\n", "3:20", "unknown field `typ`"),
        (HEAD + "    detect: [empti]\n", "3:14", "'empti' is not a value"),
        (HEAD + "    user: b\n", "2:5", "has both prompt and user"),
        (HEAD + "    think: on\n", "2:5", "`system` and `think` change nothing"),
        (HEAD + "    max_tokens: 0\n", "3:17", "must be at least 1"),
        ("prompts:\n  - expect: {exact: a}\n", "2:5", "a prompt has no text"),
        ("prompts:\n  - prompt: ' '\n", "2:13", "the prompt is empty"),
        ("prompts:\n  - tokens: []\n", "2:13", "the prompt has no tokens"),
        ("prompts:\n  - {name: x, prompt: a}\n  - {name: x, prompt: b}\n", "3:5", "two prompts"),
        ("prompts: []\n", "1:10", "the suite has 0 prompts"),
        ("at_least: 2\n" + HEAD, "1:11", "at_least is 2, but the suite has 1 prompts"),
        ("at_least: most\n" + HEAD, "1:11", "'most' is neither a number"),
        ("prompts:\n  - user: hi\n", "2:11", "has no chat template"),
        ("template: lama3\nprompts:\n  - user: hi\n", "1:11", "no chat template 'lama3'"),
        ("template: llama3\nthink: on\nprompts:\n  - user: hi\n", "1:11", "no switch for thinking"),
    ],
)
def test_one_error_with_its_place(tmp_path: Path, text: str, place: str, words: str) -> None:
    error = wrong(tmp_path, text)
    assert words in error.message
    assert str(error.position) == f"{tmp_path / 's.yaml'}:{place}"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"prompt": "a"}\n\n{"prompt": }\n', 3, "not valid JSON"),
        ('{"prompt": "a"}\n{"prompt": "b", "prompt": "c"}\n', 2, "a key occurs twice"),
        ('{"prompt": "a"}\n[1]\n', 2, "must be a mapping"),
        ('{"prompt": "a"}\n{"prompt": "b", "expect": {"regex": "["}}\n', 2, "regular expression"),
        ('{"prompt": "a", "expect": {"number": 1e999}}\n', 1, "must be finite"),
    ],
)
def test_lines_with_their_number(tmp_path: Path, text: str, line: int, words: str) -> None:
    error = wrong(tmp_path, text, "s.jsonl")
    assert words in error.message
    assert error.position is not None
    assert error.position.line == line


@pytest.mark.parametrize("name", ["tinny", "no/such.yaml", "no.jsonl"])
def test_a_suite_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(SuiteError, match=r"is called|does not exist"):
        load_suite(name, tmp_path, BUNDLE)


def book(folder: Path, suite: str) -> Path:
    return written(folder, f"name: t\nbundle: {BUNDLE}\n{suite}\n", "play.yaml")


def test_in_a_playbook(tmp_path: Path) -> None:
    use = load_playbook(book(tmp_path, "suite: tiny")).suite
    assert use is not None
    assert (use.gate, use.suite.name, use.suite.at_least) == ("health", "tiny", 12)
    use = load_playbook(book(tmp_path, "suite: {file: tiny, gate: off}")).suite
    assert use is not None
    assert use.gate == "off", "YAML reads a bare off as false"
    use = load_playbook(book(tmp_path, "suite: {file: tiny, gate: run, at_least: 90%}")).suite
    assert use is not None
    assert (use.gate, use.suite.at_least, use.suite.differ) == ("run", 11, True)
    own = "suite:\n  prompts:\n    - {prompt: a, expect: {exact: b}}"
    use = load_playbook(book(tmp_path, own)).suite
    assert use is not None
    assert (use.suite.name, len(use.suite.questions)) == ("playbook", 1)


@pytest.mark.parametrize(
    ("suite", "place", "words"),
    [
        ("suite: tyny", "play.yaml:3:8", "no suite is called 'tyny'"),
        ("suite: {gate: run}", "play.yaml:3:8", "needs either file or prompts"),
        ("suite: {file: tiny, gate: later}", "play.yaml:3:27", "'later' is not a value of 'gate'"),
        ("suite:\n  prompts: [{prompt: a, expect: {regex: '['}}]", "play.yaml:4:41", "regular"),
    ],
)
def test_wrong_in_a_playbook(tmp_path: Path, suite: str, place: str, words: str) -> None:
    (error,) = playbook_errors(book(tmp_path, suite))
    assert words in error.message
    assert str(error.position).endswith(place)


def test_a_schema_word_is_looked_at_below() -> None:
    check_schema({"type": ["object", "null"], "properties": {"a": {"items": {"pattern": "a"}}}})
    for schema in ({"items": {"type": "text"}}, {"properties": {"a": {"$ref": "x"}}},
                   {"pattern": "["}, {"minItems": True}, {"required": "a"}):  # fmt: skip
        with pytest.raises(InputError):
            check_schema(schema)
