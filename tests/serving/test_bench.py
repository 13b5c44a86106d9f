"""`fleet serve bench` against the real server, and what it makes of servers that are not ours."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleet.cli.main import build
from fleet.model.errors import InputError, UnreachableError
from fleet.profiles.formats.base import percentile
from fleet.profiles.runs import RunStore
from fleet.serving import bench
from fleet.serving.bench import Load
from tests.profiles.records import load
from tests.transport.sshd import free_port

from .conftest import TOKEN, Echo, echo

WORDS = "one two three four five"


def url(one: Echo) -> str:
    return f"http://127.0.0.1:{one.port}"


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(one) for one in range(1, 101)]
    assert [percentile(values, one) for one in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([7.0], 99) == 7.0


def test_a_run_is_one_record(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"Authorization: Bearer {TOKEN}\n")
    with echo(tmp_path / "echo", 0.01) as one:
        args = ["bench", "--http", url(one), "--clients", "3", "--requests", "6", "--prompt", WORDS]
        args += ["--token-file", str(token), "--output", str(tmp_path / "runs"), "--json"]
        done = CliRunner().invoke(build("serve"), ["serve", *args])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    found = said["metrics"]["others"]
    assert (found["requests"]["value"], found["errors"]["value"]) == (6, 0)
    assert (found["clients"]["value"], said["counts"], said["emulated"]) == (3, True, True)
    # The five words take 10 ms each; those that wait in a buffer arrive together.
    assert found["total_p50_ms"]["value"] >= 50
    assert 0 <= found["inter_token_p50_ms"]["value"] <= found["total_p50_ms"]["value"]
    assert found["ttft_p50_ms"]["value"] == said["metrics"]["ttft_ms"]
    assert found["tokens_per_s"]["value"] == pytest.approx(
        5 * found["requests_per_s"]["value"], rel=1e-6
    )
    (record,) = load(RunStore(tmp_path / "runs"))
    assert record == said
    assert TOKEN not in done.stdout


def test_errors_are_counted_and_the_run_does_not_count(tmp_path: Path) -> None:
    with echo(tmp_path / "echo") as one:
        args = ["bench", "--http", url(one), "--requests", "2", "--output", str(tmp_path / "runs")]
        done = CliRunner().invoke(build("serve"), ["serve", *args])
    assert done.exit_code == 1
    (record,) = load(RunStore(tmp_path / "runs"))
    assert record["counts"] is False
    assert "failed: 2 of 2 requests: unauthorized" in record["problems"][0]


def test_whole_answers_and_those_that_fail(tmp_path: Path) -> None:
    with echo(tmp_path / "echo") as one:
        load = Load((WORDS, "fail"), clients=2, requests=6, stream=False)
        report = bench.run(url(one), TOKEN, load)
    assert sorted({asked.text for asked in report.asked}) == ["", f"{WORDS} "]
    assert [asked.error for asked in report.errors] == ["generation_failed: as asked"] * 3
    assert "ttft_p50_ms" not in report.measures()


def test_a_stream_that_is_cut_is_an_error(tmp_path: Path) -> None:
    with echo(tmp_path / "echo", 0.2) as one:
        load = Load(("a " * 40,), clients=2, requests=2)
        threading.Timer(1.0, one.process.kill).start()
        report = bench.run(url(one), TOKEN, load)
    assert len(report.errors) == 2
    assert any(asked.ttft_ms for asked in report.asked)


class Other(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[1]")

    def log_message(self, *_: object) -> None:
        return


def test_what_is_no_service_of_ours_is_refused() -> None:
    with pytest.raises(UnreachableError):
        bench.look(f"http://127.0.0.1:{free_port()}")
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.handle_request).start()
        with pytest.raises(InputError):
            bench.look(f"http://127.0.0.1:{server.server_port}")
