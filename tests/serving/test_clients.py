"""The OpenAI endpoints with requests as clients really send them.

`clients.jsonl` was recorded from these clients, each with its own defaults, at a server that only
writes down what comes; texts are cut at 200 characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.config.chat import shipped
from fleet.device.server.chat import Cutter, read_calls

from .conftest import Echo, echo

RECORDED = [
    json.loads(line) for line in (Path(__file__).parent / "clients.jsonl").read_text().splitlines()
]
CHAT = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
CALL = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echo]:
    chat = shipped("qwen").for_service()
    limits = {"max_prompt_bytes": 40_000, "max_body_bytes": 300_000, "max_tokens": 400}
    with echo(tmp_path_factory.mktemp("qwen"), template=chat, name="tiny", **limits) as one:
        yield one


def asked(qwen: Echo, text: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], **more}
    with qwen.client() as client:
        answer = client.post(CHAT, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def streamed(qwen: Echo, text: str, **more: Any) -> list[dict[str, Any]]:
    body = {"messages": [{"role": "user", "content": text}], "stream": True, **more}
    with qwen.client() as client:
        lines = client.post(CHAT, json=body).text.splitlines()
    data = [line[6:] for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    return [json.loads(text) for text in data[:-1]]


@pytest.mark.parametrize(
    "request_", RECORDED, ids=[f"{n}-{one['client']}" for n, one in enumerate(RECORDED)]
)
def test_the_defaults_of_clients(qwen: Echo, request_: dict[str, Any]) -> None:
    """A wish for JSON is accepted and named: the model is not forced."""
    body = request_["body"]
    with qwen.client() as client:
        answer = client.post(request_["path"], json=body)
    assert answer.status_code == 200, answer.text
    if body.get("response_format"):
        assert answer.json()["ignored"] == ["response_format"]
    if body.get("stream"):
        assert answer.text.endswith("data: [DONE]\n\n")
        assert ('"usage"' in answer.text) is ("stream_options" in body)
    else:
        assert answer.json()["choices"][0]["finish_reason"] in ("stop", "length")


def test_at_least_forty_requests_were_recorded() -> None:
    assert len(RECORDED) >= 40


@pytest.mark.parametrize(
    ("wishes", "ignored"),
    [
        ({"temperature": 0, "top_p": 1, "seed": 7, "response_format": {"type": "text"}}, None),
        ({"max_tokens": 100_000, "n": 1, "logprobs": False, "logit_bias": {}}, None),
        ({"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"}, None),
        ({"temperature": 0.7, "frequency_penalty": 0.5}, ["temperature", "frequency_penalty"]),
        ({"tools": [WEATHER], "tool_choice": "required"}, ["tool_choice"]),
        ({"chat_template_kwargs": {"enable_thinking": False}}, None),
    ],
)
def test_what_has_no_effect_is_accepted_and_named(
    qwen: Echo, wishes: dict[str, Any], ignored: list[str] | None
) -> None:
    assert asked(qwen, "hi", **wishes).get("ignored") == ignored


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"chat_template_kwargs": {"x": True}}, "chat_template_kwargs"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_would_change_the_answer_is_refused(
    qwen: Echo, wrong: dict[str, Any], param: str
) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], **wrong}
    with qwen.client() as client:
        answer = client.post(CHAT, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_system_message_stands_where_the_template_puts_it(qwen: Echo) -> None:
    turns = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    said = asked(qwen, "", messages=turns)["choices"][0]["message"]["content"]
    assert said.split()[:4] == ["<|im_start|>system", "Be", "brief.<|im_end|>", "<|im_start|>user"]


def test_an_answer_ends_before_a_stop(qwen: Echo) -> None:
    whole = asked(qwen, "SAY one two three four", stop=["three", "never"])["choices"][0]
    assert (whole["message"]["content"], whole["finish_reason"]) == ("one two ", "stop")
    chunks = streamed(qwen, "SAY one two three four", stop="ee")
    assert "".join(one["choices"][0]["delta"].get("content", "") for one in chunks) == "one two thr"
    with qwen.client() as client:
        body = {"prompt": "SAY a.b.c", "stop": ".c"}
        text = client.post("/generate", json=body).json()["text"]
        more = client.post("/v1/completions", json={**body, "prompt": ["SAY a.b.c"]}).json()
    assert text == "a.b"
    assert (more["object"], more["choices"][0]["text"]) == ("text_completion", "a.b")


def test_calls_of_tools_are_read_from_the_text(qwen: Echo) -> None:
    text = f"SAY Let me see. <tool_call>{CALL}</tool_call>"
    choice = asked(qwen, text, tools=[WEATHER])["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    content = choice["message"]["content"]
    assert (choice["finish_reason"], content.strip()) == ("tool_calls", "Let me see.")
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    chunks = streamed(qwen, text, tools=[WEATHER])
    deltas = [one["choices"][0]["delta"] for one in chunks]
    assert [delta["tool_calls"][0]["index"] for delta in deltas if "tool_calls" in delta] == [0]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert "<tool_call>" not in json.dumps(chunks)
    plain = asked(qwen, text)["choices"][0]
    assert "tool_calls" not in plain["message"]


def test_token_ids_and_logits(tmp_path: Path) -> None:
    with echo(tmp_path, vocabulary=2000) as one, one.client() as client:
        stream = client.post("/generate/stream", json={"prompt": [1, 42, 1337]}).text
        logits = client.post("/generate", json={"prompt": [1, 42], "logits": True}).json()
        wrong = client.post("/generate/stream", json={"prompt": [1], "logits": True})
        models = [client.get(f"/v1/models{end}").json() for end in ("", "/echo")]
    assert [line for line in stream.splitlines() if "token" in line and "data" in line][:3] == [
        'data: {"token": 1, "text": "1 "}',
        'data: {"token": 42, "text": "42 "}',
        'data: {"token": 1337, "text": "1337 "}',
    ]
    assert logits["logits"] == [2.0, 0.5]
    assert wrong.json()["error"]["param"] == "logits"
    assert models[0]["data"] == [models[1]]


@pytest.mark.parametrize(
    ("text", "before", "names"),
    [
        (f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{CALL}</tool_call>", "", 2),
        (f"Well.\n\n<tool_call>{CALL}", "Well.", 1),
        (f"<TOOLCALL>[{CALL}, {CALL}]</TOOLCALL>", "", 2),
        ('{"name": "get_weather", "parameters": {"city": "Oslo"}}', "", 1),
        (f"<|python_tag|>{CALL}; {CALL}", "", 2),
        ('{"name": "other", "parameters": {}}', None, 0),
        ('{"name": "get_weather", "parameters": "x"}', None, 0),
        ("<tool_call>not JSON</tool_call>", None, 0),
        (f"<tool_call>{CALL}</tool_call> and more", None, 0),
        ("[1, 2]", None, 0),
        ("", None, 0),
    ],
)
def test_forms_of_calls(text: str, before: str | None, names: int) -> None:
    left, calls = read_calls(text, ("get_weather",))
    assert [call.name for call in calls] == ["get_weather"] * names
    assert left == (text if before is None else before)


def test_text_that_only_looks_like_a_stop_or_a_call_goes_out(qwen: Echo) -> None:
    cutter = Cutter(("<end>",), ("get_weather",))
    pieces = [cutter.take(piece) for piece in ("a <", "en", " b <tool", "box>")]
    assert pieces == ["a ", "", "<en b ", "<toolbox>"]
    held = Cutter((), ("get_weather",))
    assert (held.take('{"an'), held.take('swer": 1}'), held.end()) == ("", "", '{"answer": 1}')
    assert asked(qwen, 'SAY {"a": 1}', tools=[WEATHER])["choices"][0]["message"]["content"] == (
        '{"a": 1}'
    )
