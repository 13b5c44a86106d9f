"""`fleet serve`: the model of a playbook as a service on its devices."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.cli import options as opt
from fleet.cli import output
from fleet.cli.common import DEFAULT_PARALLEL, end_devices, hosts_of, only_host
from fleet.cli.live import listening
from fleet.cli.options import App
from fleet.cli.results import emit, show_devices, show_errors
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.operation import Operation
from fleet.engine.options import DeployOptions
from fleet.engine.pool import DeviceResult
from fleet.engine.serving.service import ServiceStatus, Serving, health_or_why
from fleet.engine.serving.tunnel import Tunnel
from fleet.engine.session import Session
from fleet.model.deadline import parse_duration, utc_text
from fleet.model.errors import InputError
from fleet.model.files import file_errors, human_bytes
from fleet.model.record import Record
from fleet.profiles.runs import RunStore
from fleet.serving import bench as client

# `fleet serve bench`: a load test of a service from the client side, stored as a record.

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
    began = utc_text()
    report = client.run(url, _token(token_file), load)
    record = report.record(url, health, began)
    store = RunStore(output_dir)
    store.save(store.folder(record.run_id, record.host, 0, warmup=False), record)
    if as_json:
        output.emit_json(record)
    else:
        _show(record, report)
    if not report.fine:
        raise typer.Exit(1)


def _token(path: Path | None) -> str:
    """Return the token in a file, which may contain it as a header line. Raises InputError."""
    if path is None:
        return ""
    with file_errors(path, hint="fleet serve token --save FILE"):
        text = path.read_text("utf-8").strip()
    word = text.split()[-1] if text else ""
    if not word.isascii():
        raise InputError(f"the file {path} contains no token", hint="fleet serve token --save FILE")
    return word


def _show(record: Record, report: client.LoadReport) -> None:
    measures = record.metrics.others
    rows = []
    for name, word in (
        ("ttft", "time to first token"),
        ("inter_token", "between tokens"),
        ("total", "whole request"),
        ("queue", "time in the queue"),
    ):
        cells = [measures.get(f"{name}_p{percent}_ms") for percent in client.PERCENTILES]
        if cells[0] is not None:
            rows.append((word, *(f"{cell.value:.1f}" for cell in cells if cell is not None)))
    emulated = ", emulated" if record.emulated else ""
    title = f"{record.name} {record.release}{emulated}: {report.load.clients} clients"
    output.table(title, ("ms", *(f"p{percent}" for percent in client.PERCENTILES)), rows)
    output.say(
        f"{len(report.asked)} requests in {report.seconds:.1f} s, {len(report.errors)} errors; "
        f"{measures['requests_per_s'].value:.2f} requests/s, "
        f"{measures['tokens_per_s'].value:.1f} tokens/s"
    )
    for text in record.problems:
        output.say(f"  {text}")
    output.say(f"run {record.run_id}: fleet profiles show {record.run_id}")


app = App(no_args_is_help=True, help="Run a model as a service on devices.")


class Unit(StrEnum):
    """The supervisor of the server."""

    auto = "auto"
    user = "user"
    system = "system"
    none = "none"


UnitOption = Annotated[
    Unit,
    typer.Option(
        help="What starts and restarts the service: systemd of the user (user), systemd of the "
        "system (system, needs root), or fleet's own supervisor (none)."
    ),
]


def _starting(word: str, about: str, *, again: bool) -> None:
    """Add the command `start`, or with `again` `restart`, which replaces a running service."""

    def work(
        playbook: opt.Playbook,
        inventory: opt.Inventory,
        limit: opt.Limit = None,
        unit: UnitOption = Unit.auto,
        offline: opt.Offline = False,
        parallel: opt.Parallel = None,
        as_json: opt.Json = False,
    ) -> None:
        loaded, hosts = load_playbook(playbook), hosts_of(inventory, limit)
        with listening(as_json=as_json, total=len(hosts)) as listener:
            serving = Serving(loaded, hosts, listener)
            options = DeployOptions(run="never", offline=offline, parallel=parallel)
            operation = Operation(loaded, hosts, listener, options=options)
            results = serving.start(operation, unit=unit.value, again=again)
        if not as_json:
            show_devices(f"serve {loaded.name}", results)
            _advise_tunnel(results)
        end_devices(results)

    example = f"fleet serve {word} playbooks/tiny-service.yaml -i inventories/lab.yaml"
    app.command(word, help=f"{about}\n\nExample: {example}")(work)


def _advise_tunnel(results: Sequence[DeviceResult[Any]]) -> None:
    """Print the command for the first device whose service is ready; a tunnel is to one device."""
    for host in [result.host for result in results if result.fine][:1]:
        output.advise(f"next: fleet serve tunnel --limit {shlex.quote(host.name)}")


_starting(
    "start", "Start the service with the deployed release, and wait until it is ready.", again=False
)
_starting(
    "restart", "Stop the service and start it with the release that is deployed now.", again=True
)


def _serving(
    playbook: Path, inventory: Path, limit: list[str] | None, parallel: int | None = None
) -> Serving:
    hosts = hosts_of(inventory, limit)
    many = parallel or DEFAULT_PARALLEL
    return Serving(load_playbook(playbook), hosts, lambda _: None, parallel=many)


@app.command()
def status(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Show whether the service runs, its supervisor and its release. Reads only.

    Example: fleet serve status playbooks/tiny-service.yaml -i inventories/lab.yaml
    """
    results = _serving(playbook, inventory, limit, parallel).status()
    if as_json:
        emit(results, "text")
    else:
        output.table("service", _COLUMNS, [_row(result) for result in results], _DROPS)
    show_errors(results)
    end_devices(results)


_COLUMNS = (
    "device", "state", "supervisor", "release", "deployed", "port", "pid", "memory", "queue",
    "restarts", "emulated",
)  # fmt: skip


_DROPS = ("restarts", "queue", "memory", "pid", "deployed", "supervisor", "emulated", "port")


def _row(result: DeviceResult[ServiceStatus]) -> tuple[object, ...]:
    keeper = {"user": "systemd (user)", "system": "systemd", "none": "fleet"}
    status = result.value
    if status is None:
        return (result.host.name, result.text, *"-" * 7, 0, "no")
    state, rss = status.state, status.health.get("rss_bytes")
    return (
        result.host.name,
        result.text,
        keeper.get(state.kept_by or "", "-"),
        state.release or "-",
        state.current or "-",
        status.port,
        state.pid or "-",
        human_bytes(rss) if isinstance(rss, int) else "-",
        status.health.get("queue", "-"),
        state.restarts or 0,
        "yes" if status.emulated else "no",
    )


@app.command()
def stop(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    parallel: opt.Parallel = None,
    as_json: opt.Json = False,
) -> None:
    """Stop the service; a running request may finish within `stop_timeout`.

    Example: fleet serve stop playbooks/tiny-service.yaml -i inventories/lab.yaml
    """
    results = _serving(playbook, inventory, limit, parallel).stop()
    if as_json:
        emit(results, "text")
    else:
        show_devices("serve stop", results)
    end_devices(results)


@app.command()
def logs(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=10_000, help="Number of lines to show.")
    ] = 50,
    as_json: opt.Json = False,
) -> None:
    """Show the end of the service's log.

    Example: fleet serve logs playbooks/tiny-service.yaml -i inventories/lab.yaml -n 100
    """
    results = _serving(playbook, inventory, limit).logs(lines)
    if as_json:
        emit(results, "text", plain=lambda log: {"log": log})
    else:
        for result in results:
            for line in (result.value or "").splitlines():
                output.say(f"{result.host.name}: {line}")
    show_errors(results)
    end_devices(results)


@app.command()
def token(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    new: Annotated[
        bool, typer.Option("--new", help="Create a new token; the old one stops working at once.")
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Write the token as an HTTP header line to this file; curl reads it with -H @FILE."
        ),
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Show the token of the service, or save it to a file. No other command shows it.

    Example: fleet serve token playbooks/tiny-service.yaml -i lab.yaml -l lab001 --save token
    """
    results = _serving(playbook, inventory, limit).token(new=new)
    tokens = {
        result.host.name: result.value.reveal() for result in results if result.value is not None
    }
    if save is not None:
        if len(results) != 1:
            raise InputError(
                "--save writes the token of one device, but several devices are selected",
                hint="select one device: --limit HOST",
            )
        for value in tokens.values():
            _keep(save, value)
            output.advise(f"next: fleet serve tunnel (prints a curl command that reads {save})")
    elif as_json:
        shown = [{"host": name, "token": value} for name, value in tokens.items()]
        output.emit_json(shown, shows_secret=True)
    else:
        for name, value in tokens.items():
            output.literal(value if len(results) == 1 else f"{name} {value}")
    show_errors(results)
    end_devices(results)


def _keep(path: Path, value: str) -> None:
    with file_errors(path, "write"):
        path.unlink(missing_ok=True)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as stream:
            stream.write(f"Authorization: Bearer {value}\n")


@app.command()
def tunnel(
    playbook: opt.Playbook,
    inventory: opt.Inventory,
    limit: opt.Limit = None,
    local_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this computer; 0 selects a free port.")
    ] = 0,
    as_json: opt.Json = False,
) -> None:
    """Forward a loopback port of this machine to the service. Ctrl-C ends it.

    Example: fleet serve tunnel playbooks/tiny-service.yaml -i inventories/lab.yaml -l lab001
    """
    host = only_host(inventory, limit, "a tunnel")
    loaded = load_playbook(playbook)
    if loaded.serve is None:
        raise InputError(
            f"the playbook {playbook} has no `serve:` section, so it describes no service",
            hint="add a `serve:` section to the playbook (docs/serving.md has an example)",
        )
    session = Session(host, lambda _: None)
    session.open()
    try:
        with Tunnel(session, loaded.serve.port, local=local_port, say=output.note) as opened:
            if as_json:
                output.emit_line({"url": opened.url, "device": host.name})
            else:
                output.say(f"{opened.url} forwards to the service {loaded.name} on {host.name}")
                output.say(
                    f"  fleet serve token {playbook} -i {inventory} -l {host.name} --save token"
                )
                health, _ = health_or_why(session.transport.dial, loaded.serve.port)
                for call in _calls(opened.url, loaded.name, health or {}):
                    output.say(f"  {call}")
            opened.wait()
    finally:
        session.close()


def _calls(url: str, name: str, health: dict[str, Any]) -> Iterator[str]:
    """Yield the calls that this service answers, according to its /health."""
    curl = f"curl -N -H @token -H 'Content-Type: application/json' {url}"
    paths = health.get("paths") or ()
    if "/generate/stream" in paths:
        prompt = "[1, 42, 137]" if health.get("text") is False else '"What is an NPU?"'
        yield f"{curl}/generate/stream -d '{{\"prompt\": {prompt}}}'"
    if "/v1/chat/completions" in paths:
        yield f"OpenAI clients: base URL {url}/v1, model {name}, the token as API key"
    if "/infer" in paths:
        yield f"python3 -c {shlex.quote(_zeros(health.get('inputs')))} | {curl}/infer -d @-"
    if not paths:
        yield "the service does not answer yet: fleet serve status"


def _zeros(inputs: object) -> str:
    """Return a program that prints a request with zeros for the inputs of a model."""
    parts = ", ".join(
        f"{str(name)!r}: {{'data': [0] * {math.prod(shape)}, 'shape': {shape}}}"
        for name, shape in (inputs.items() if isinstance(inputs, dict) else ())
        if isinstance(shape, list) and all(isinstance(size, int) and size > 0 for size in shape)
    )
    return f"import json; print(json.dumps({{'inputs': {{{parts}}}}}))"


app.command()(bench)
