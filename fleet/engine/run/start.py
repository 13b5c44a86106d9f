"""The start of a runner on a device and the collection of its output, in two round trips."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fleet.device.shell import AfterMark, device_script
from fleet.engine.budget import allowed
from fleet.engine.everyday.logs import LogLines, LogQuery
from fleet.engine.pool import DeviceResult
from fleet.engine.session import Beginning, Session
from fleet.model.errors import DeadlineError, FleetError, HealthError
from fleet.model.manifest import RELEASE, Manifest
from fleet.ops.collected import Collected
from fleet.ops.looks import LOOKS, run_command
from fleet.ops.release import release_dir
from fleet.runners.base import Ended, Start

WORK = "{work}"
GRACE_SECONDS = 15.0  # the device ends the run itself; the host only if it does not
COLLECT_SECONDS = 60.0
KEEP_BYTES = 1 << 20  # of standard output in memory; the listener gets all of it
LINE_CHARS = 500  # the longest line in a message
_LOG_LINES = 400
_FASTRPC = re.compile(r"fastrpc|adsprpc|apps_dev_init|open_shell|rpcmem_\w+\.c", re.IGNORECASE)
_TELLING = ("error", "<e>", "cannot", "fail", "traceback", "did not end within")


@dataclass(frozen=True)
class Placed:
    """A start with absolute folders on a device, ready to run."""

    start: Start
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    work: str
    unset: tuple[str, ...]


@dataclass
class Sampling:
    """Samples of the device every `every` seconds of a run; `output` is their output as text.

    A process of the run's own command takes them, and they come with its outcome. They need no
    further round trip.
    """

    every: float
    output: str = field(default="", init=False)


def place(start: Start, manifest: Manifest, base: str, run_id: str) -> Placed:
    """Return the start with the folders of the device filled in."""
    release = release_dir(base, manifest.name, manifest.id)
    work = f"{base}/runs/{run_id}"

    def filled(text: str) -> str:
        return text.replace(RELEASE, release).replace(WORK, work)

    return Placed(
        start,
        tuple(filled(word) for word in start.argv),
        manifest.environment(release) | {k: filled(v) for k, v in start.env.items()},
        f"{release}/{start.cwd}".rstrip("/"),
        work,
        manifest.unset,
    )


def execute(
    session: Session,
    placed: Placed,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    sampling: Sampling | None = None,
) -> Ended:
    """Run the program to its end and collect the named files.

    `on_stdout` and `on_stderr` get each chunk of its output. A run past its deadline has status
    124.
    """
    start = placed.start
    limit = str(math.ceil(allowed(session.host, start.timeout)))
    feed = "prompt" if start.feeds_prompt else "none"
    collect = (*start.collect, *((LOOKS,) if sampling else ()))
    words = (placed.work, start.config, limit, feed, "keep" if collect else "clean", *placed.argv)
    shell = run_command(sampling.every, *words) if sampling else device_script("run", *words)
    command = replace(shell, env=placed.env, cwd=placed.cwd, unset=placed.unset)
    out, err = Beginning(on_stdout, KEEP_BYTES), Beginning(on_stderr, KEEP_BYTES)
    try:
        status = session.run(
            command,
            "",
            stdin=[start.prompt] if start.prompt else (),
            seconds=start.timeout + GRACE_SECONDS,
            mutates=True,
            on_stdout=out.take,
            on_stderr=err.take,
        ).status
    except DeadlineError:
        status = 124
    seconds = time.monotonic() - out.began
    collected = Collected()
    if collect or status == 124:
        session.run(
            device_script("collect", placed.work, *collect),
            "",
            seconds=COLLECT_SECONDS,
            mutates=True,
            on_stdout=AfterMark(collected.take),
        )
    looks = collected.files.pop(LOOKS, b"")
    if sampling is not None:
        sampling.output = looks.decode("utf-8", "replace")
    return Ended(status, bytes(out.kept), collected.files, bytes(err.kept), seconds)


def probe(session: Session, placed: Placed, *, npu: bool = True) -> None:
    """Run the health probe. Raises HealthError, worded for an NPU session if `npu`."""
    output = Beginning(None, KEEP_BYTES)
    ended = execute(session, placed, output.take, output.take)
    if ended.status:
        raise HealthError(
            f"the new release cannot {'open an NPU session' if npu else 'start its program'} (exit "
            f"status {ended.status}): "
            f"{_first_words(_of_fastrpc(session, ended.seconds, output.text) + output.text)}",
            step="health",
            hint=f"fleet doctor --limit {session.host.name} (finds the cause; the device still "
            "uses "
            "its old release)",
        )


def _of_fastrpc(session: Session, seconds: float, output: str) -> str:
    """Return the lines that libcdsprpc and the kernel wrote to the system log during the run.

    Returns "" if the program printed such lines itself. Only these lines have the errno, and not
    every program prints them.
    """
    result = DeviceResult[LogLines](session.host)
    if _FASTRPC.search(output) is None:
        with suppress(FleetError):
            LogQuery((), _LOG_LINES, seconds + 1).work(session, result)
    lines = result.value.lines if result.value else ()
    return "".join(f"{text}\n" for _, text in lines if _FASTRPC.search(text))


def _first_words(text: str) -> str:
    """Return the lines that explain a failure.

    The cause of the chain is first (docs/sources/qairt.md 8), and the error code that people know
    is last.
    """
    lines = [line.strip()[:LINE_CHARS] for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(mark in line.lower() for mark in _TELLING)]
    chosen = telling or lines[-3:]
    rest = chosen[3:]
    coded = [line for line in rest if re.search(r"\d{4}", line)]
    return " | ".join(chosen[:3] + (coded or rest)[-1:]) or "the program printed nothing"
