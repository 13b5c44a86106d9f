"""A service on a board behind a real sshd: the real libGenie, the tiny model, a tunnel."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleet.model.errors import DeviceError
from fleet.serving import bench
from fleet.serving.bench import Load
from tests.assets.answers import known

from .conftest import QUEUE, Service

pytestmark = pytest.mark.qairt
STORY = "Tell me a story."


def number(said: object) -> int:
    assert isinstance(said, int)
    return said


def gone(pid: int) -> bool:
    """Ended; this machine's init may be late to reap it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def waited(condition: Any, seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found


def test_each_stream_gets_its_own_tokens(served: Service) -> None:
    """8 clients at once, each with another question: no token lost, none in a wrong answer."""
    answers = dict(list(known().items())[:8])
    with served.tunnel() as url:
        load = Load(prompts=tuple(answers), clients=8, requests=8, max_tokens=8)
        report = bench.run(url, served.token(), load)
    assert [one.error for one in report.errors] == []
    assert {one.prompt for one in report.asked} == set(answers)
    for one in report.asked:
        assert one.tokens == 8
        assert one.text
        assert answers[one.prompt].startswith(one.text)
        assert len(one.gaps_ms) >= 5
    assert len({one.text for one in report.asked}) == 8
    found = report.measures()
    assert found["requests"].value == 8
    assert found["ttft_p50_ms"].value <= found["ttft_p99_ms"].value < found["total_p99_ms"].value
    assert found["tokens_per_s"].value > 0


def test_health_needs_no_token_and_all_else_does(served: Service) -> None:
    with served.tunnel() as url, httpx.Client(base_url=url, trust_env=False) as client:
        said = client.get("/health").json()
        assert (said["status"], said["emulated"], said["backend"]) == ("ready", True, "genie")
        assert client.get("/openapi.json").json()["paths"].keys() >= {"/generate", "/health"}
        for head in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": served.token()}):
            refused = client.post("/generate", json={"prompt": "hi"}, headers=head)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "unauthorized"


def test_chat_whole_and_streamed(served: Service) -> None:
    question = "What is a stub?"
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 92}
    with served.client() as client:
        whole = client.post("/v1/chat/completions", json=body).json()
        stream = client.post("/v1/chat/completions", json={**body, "stream": True}).text
        warm = client.post("/v1/chat/completions", json={**body, "temperature": 0.5}).json()
        models = client.get("/v1/models").json()
    assert whole["choices"][0]["message"]["content"] == known()[question]
    assert whole["usage"]["total_tokens"] > whole["usage"]["prompt_tokens"] > 0
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert "".join(one["delta"].get("content", "") for one in chunks) == known()[question]
    assert chunks[-1]["finish_reason"] == "stop"
    assert warm["choices"] == whole["choices"]
    assert (warm["ignored"], "ignored" in whole) == (["temperature"], False)
    assert models["data"][0]["id"] == served.playbook.name


def test_token_ids_in_and_out_say_the_same_as_text(served: Service) -> None:
    with served.client() as client:
        text = client.post("/generate", json={"prompt": "What is fleet?"}).json()["text"]
        ids = client.post("/generate", json={"prompt": [281, 275, 301, 32]}).json()
        stream = client.post("/generate/stream", json={"prompt": [281, 275, 301, 32]}).text
        again = client.post("/generate", json={"prompt": [281, 275, 301, 32]}).json()
    assert ids["text"] == text == known()["What is fleet?"]
    assert ids["tokens"] == again["tokens"]
    assert next(line for line in stream.splitlines() if line.startswith("data:")) == (
        f'data: {{"token": {ids["tokens"][0]}, "text": "f"}}'
    )


def test_limits_are_honoured_and_said(served: Service) -> None:
    with served.client() as client:
        short = client.post("/generate", json={"prompt": STORY, "max_tokens": 3}).json()
        assert (short["finish_reason"], short["usage"]["completion_tokens"]) == ("length", 3)
        long = client.post("/generate", json={"prompt": "a b c d e " * 60})
        assert (long.status_code, long.json()["error"]["code"]) == (400, "context_exceeded")
        longer = client.post("/generate", json={"prompt": "a" * 5000})
        assert (longer.status_code, longer.json()["error"]["code"]) == (400, "prompt_too_long")
        after = client.post("/generate", json={"prompt": "What is a skel?"}).json()
    assert after["text"] == known()["What is a skel?"], "a full context must not stay"


def test_a_client_that_goes_ends_its_generation(served: Service) -> None:
    with served.client() as client:
        before = client.get("/health").json()["served"]
        body = {"prompt": STORY}
        with client.stream("POST", "/generate/stream", json=body) as answer:
            next(answer.iter_lines())

        def ended() -> bool:
            now = client.get("/health").json()
            return not now["running"] and now["served"]["cancelled"] == before["cancelled"] + 1

        waited(ended)
        again = client.post("/generate", json={"prompt": "What is a skel?"}).json()
    assert again["text"] == known()["What is a skel?"]


def test_the_token_is_nowhere_but_in_its_file(served: Service) -> None:
    token = served.token()
    file = served.folder / "token"
    assert file.read_text().strip() == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(served.folder.stat().st_mode) == 0o700
    pid = number(served.status()["pid"])
    for name in ("cmdline", "environ"):
        assert token.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
    for path in served.folder.iterdir():
        if path.is_file() and path.name != "token":
            assert token not in path.read_text(errors="replace"), path
    assert token not in repr(served.said)


def test_another_token_ends_the_old_one(served: Service) -> None:
    old = served.token()
    served.serving().token(new=True)
    with served.tunnel() as url:
        codes = [
            httpx.get(
                f"{url}/v1/models", headers={"Authorization": f"Bearer {one}"}, trust_env=False
            ).status_code
            for one in (old, served.token())
        ]
    assert codes == [401, 200]


def test_a_killed_server_breaks_its_streams_and_comes_back(served: Service) -> None:
    """kill -9 in mid-stream: the client has an error, not a time-out, and the service is back."""
    before = served.status()
    with served.client() as client:
        with client.stream("POST", "/generate/stream", json={"prompt": STORY}) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: token"
            os.kill(number(before["pid"]), signal.SIGKILL)
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                list(lines)

        def back() -> bool:
            try:
                return bool(client.get("/health").json()["ready"])
            except httpx.HTTPError:
                return False

        waited(back)
        said = client.post("/generate", json={"prompt": "What is a skel?"}).json()
    assert said["text"] == known()["What is a skel?"]
    after = served.status()
    assert (after["keeper"], after["restarts"]) == (before["keeper"], 1)
    assert after["pid"] != before["pid"]


def test_a_second_start_changes_nothing(served: Service) -> None:
    pid = served.status()["pid"]
    done = served.start()
    assert done.outcome == "unchanged", done.text
    assert served.status()["pid"] == pid


def test_a_full_queue_is_429(served: Service) -> None:
    with served.client() as client:
        answers: list[httpx.Response] = []
        ask = {"prompt": "hi", "max_tokens": 4}
        threads = [
            threading.Thread(target=lambda: answers.append(client.post("/generate", json=ask)))
            for _ in range(3 * QUEUE)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    codes = [one.status_code for one in answers]
    assert len(codes) == 3 * QUEUE
    assert set(codes) == {200, 429}
    full = next(one for one in answers if one.status_code == 429)
    assert full.headers["retry-after"].isdigit()
    assert full.json()["error"]["code"] == "queue_full"


@pytest.mark.slow
def test_a_deploy_beside_it_leaves_it_and_status_says_so(
    served: Service, own_bundle: Callable[[], Path]
) -> None:
    """It serves the old release until it is restarted; pruning leaves what is served."""
    old = served.status()
    was, newer = served.playbook, own_bundle()
    served.playbook = replace(was, bundle=newer, keep=1)
    try:
        for text in ("one", "two", "three"):
            (newer / "sample_prompt.txt").write_text(text)
            served.deploy()
        now = served.status()
        assert now["older"] is True
        assert "older release" in str(now["text"])
        assert (now["pid"], now["release"]) == (old["pid"], old["release"])
        assert (served.base / "meta" / was.name / str(now["release"]) / "env.sh").exists()
        refused = served.start()
        assert isinstance(refused.error, DeviceError)
        assert "fleet serve restart" in refused.error.hint
        again = served.start(again=True)
        assert again.outcome == "changed", again.error
        after = served.status()
        assert (after["older"], after["release"]) == (False, now["current"])
        with served.client() as client:
            assert client.get("/health").json()["release"] == now["current"]
    finally:
        served.playbook = was


def test_what_is_not_deployed_is_not_started(
    served: Service, own_bundle: Callable[[], Path]
) -> None:
    was, other = served.playbook, own_bundle()
    (other / "sample_prompt.txt").write_text("never deployed")
    served.playbook = replace(was, bundle=other)
    try:
        refused = served.start(again=True)
    finally:
        served.playbook = was
    assert "fleet deploy" in refused.error.hint  # type: ignore[union-attr]
    assert served.status()["kept_by"] == "none"


def test_stop_ends_it_and_nothing_else(served: Service) -> None:
    before = served.status()
    (done,) = served.serving().stop()
    assert (done.outcome, done.text) == ("changed", "stopped")
    after = served.status()
    assert (after["kept_by"], after["text"], after["pid"]) == (None, "stopped", None)
    for name in ("keeper", "server"):
        assert gone(number(before[name]))
    (again,) = served.serving().stop()
    assert again.outcome == "unchanged"
    served.deploy()
    back = served.start()
    assert back.outcome == "changed", back.error
