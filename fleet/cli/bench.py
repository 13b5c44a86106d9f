"""`fleet serve bench`: a load on a service, measured from outside, kept as a record."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.model.deadline import parse_duration
from fleet.model.errors import InputError
from fleet.model.files import told
from fleet.model.record import Metrics, Record
from fleet.model.version import VERSION
from fleet.profiles.runs import RunStore, new_run_id
from fleet.serving import bench as client

_PROMPT = "What is an NPU?"


Clients = Annotated[
    int,
    typer.Option(min=1, max=1024, help="Number of clients that send requests at the same time."),
]
Stream = Annotated[
    bool,
    typer.Option(
        "--stream/--whole", help="Receive each answer token by token (--stream), or as a whole."
    ),
]


def bench(
    http: Annotated[str, typer.Option(help="Address that `fleet serve tunnel` prints.")],
    clients: Clients = 1,
    duration: Annotated[
        str | None, typer.Option(help="How long to send requests, such as 60s or 5m.")
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Total number of requests.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Token file, written by `fleet serve token --save FILE`.")
    ] = None,
    stream: Stream = True,
    prompt: Annotated[
        list[str] | None, typer.Option(help="Text of the prompt. Repeatable.", show_default=False)
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Generate at most this many tokens per answer.")
    ] = None,
    timeout: Annotated[str, typer.Option(help="Wait at most this long for an answer.")] = "5m",
    output_dir: opt.Records = None,
    as_json: opt.Json = False,
) -> None:
    """Measure a service: time to the first token, between tokens, throughput, errors.

    Example: fleet serve bench --http http://127.0.0.1:40123 --duration 60s --token-file token
    """
    if duration is None and requests is None:
        requests = 10 * clients
    url = http.rstrip("/")
    load = client.Load(
        prompts=tuple(prompt or [_PROMPT]),
        clients=clients,
        requests=requests,
        seconds=parse_duration(duration) if duration else None,
        stream=stream,
        max_tokens=max_tokens,
        timeout=parse_duration(timeout),
    )
    health = client.look(url)
    began = time.gmtime()
    report = client.run(url, _token(token_file), load)
    record = _record(url, health, report, began)
    store = RunStore(output_dir)
    store.save(store.folder(record.run_id, record.host, 0, warmup=False), record)
    if as_json:
        output.emit_json(record.as_dict())
    else:
        _show(record, report)
    if report.errors or not report.asked:
        raise typer.Exit(1)


def _token(path: Path | None) -> str:
    """The token of a file, which may hold it as a header line."""
    if path is None:
        return ""
    with told(path, hint="fleet serve token --save FILE"):
        text = path.read_text("utf-8").strip()
    word = text.split()[-1] if text else ""
    if not word.isascii():
        raise InputError(f"the file {path} contains no token", hint="fleet serve token --save FILE")
    return word


def _record(
    url: str, health: dict[str, Any], report: client.LoadReport, began: time.struct_time
) -> Record:
    load = report.load
    measures = report.measures()
    first = measures.get("ttft_p50_ms")
    metrics = Metrics(ttft_ms=first.value if first else None, others=measures)
    problems = []
    if report.errors:
        words = sorted({request.error for request in report.errors})
        problems.append(f"failed: {len(report.errors)} of {len(report.asked)} requests: {words[0]}")
    how = "--stream" if load.stream else "--whole"
    return Record(
        run_id=new_run_id(),
        host=urlsplit(url).netloc,
        name=str(health["name"]),
        release=str(health["release"]),
        runner="http",
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", began),
        seconds=round(report.seconds, 3),
        status=0,
        metrics=metrics,
        problems=tuple(problems),
        emulated=bool(health["emulated"]),
        argv=("fleet", "bench", "--http", url, "--clients", str(load.clients), how),
        prompt_sha256=hashlib.sha256("\0".join(load.prompts).encode()).hexdigest(),
        origin={"build_id": health["build"], "backend": health.get("backend", "")},
        fleet=VERSION,
    )


def _show(record: Record, report: client.LoadReport) -> None:
    found = record.metrics.others
    rows = []
    for name, word in (
        ("ttft", "time to first token"),
        ("inter_token", "between tokens"),
        ("total", "whole request"),
        ("queue", "time in the queue"),
    ):
        cells = [found.get(f"{name}_p{percent}_ms") for percent in client.PERCENTILES]
        if cells[0] is not None:
            rows.append((word, *(f"{cell.value:.1f}" for cell in cells if cell is not None)))
    emulated = ", emulated" if record.emulated else ""
    title = f"{record.name} {record.release}{emulated}: {report.load.clients} clients"
    output.table(title, ("ms", *(f"p{percent}" for percent in client.PERCENTILES)), rows)
    output.say(
        f"{len(report.asked)} requests in {report.seconds:.1f} s, {len(report.errors)} errors; "
        f"{found['requests_per_s'].value:.2f} requests/s, "
        f"{found['tokens_per_s'].value:.1f} tokens/s"
    )
    for text in record.problems:
        output.say(f"  {text}")
    output.say(f"run {record.run_id}: fleet profiles show {record.run_id}")
