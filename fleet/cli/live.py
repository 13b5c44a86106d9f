"""Events on the screen: a live table on a terminal, plain lines elsewhere, or JSON lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fleet.cli import output
from fleet.cli.hints import completed
from fleet.model import events
from fleet.model.events import Event, Listener
from fleet.model.files import human_bytes

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

REFRESH_PER_SECOND = 8
MOST_NAMED = 3
AGAIN = "fleet tries again in"  # later events report the result of the retry
LONGEST_LINE = 4000  # the output of a device that ends no line is shown in pieces
_GREEN = {"unchanged", "changed", "ran", "planned", "ok"}


@contextmanager
def listening(
    *, as_json: bool, show_output: bool = False, ready: bool = True, total: int = 0
) -> Iterator[Listener]:
    """Provide the listener that fits the output, for `total` devices.

    Without `ready`, the caller has to load the modules that show the results.
    """
    if as_json:
        lock = threading.Lock()

        def say(event: Event) -> None:
            with lock:
                output.emit_line(event)

        yield say
    elif not show_output and output.on_terminal():
        from rich.live import Live  # noqa: PLC0415 - only on a terminal

        board = _Board(total)
        with Live(board.view(), console=output.errors, auto_refresh=False, transient=True) as live:
            board.live = live
            # Redraw even without events, for example while a large file is unpacked.
            with ticking(1.0, board.tick):
                yield board.take
        for text in board.warnings():  # the warnings vanish with the table
            output.note(text)
    else:
        if ready:
            output.ready()
        yield _Lines(show_output=show_output).take


@contextmanager
def ticking(seconds: float, tick: Callable[[], None]) -> Iterator[None]:
    """Call `tick` in a thread of its own every so many seconds while the context is open."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(seconds):
            tick()

    thread = threading.Thread(target=work, daemon=True, name="fleet-tick")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Lines:
    """A listener that prints one line for each event, progress only at its end. For CI and
    pipes.
    """

    def __init__(self, *, show_output: bool) -> None:
        self._show_output = show_output
        self._lock = threading.Lock()
        self._begun: dict[tuple[str, str], str] = {}

    def take(self, event: Event) -> None:
        """Print the lines of an event; print text of a runner when its line is complete."""
        with self._lock:
            if isinstance(event, events.Output):
                if self._show_output:
                    self._stream(event)
                return
            if isinstance(event, events.RunDone):
                self._flush(event.host)
            text = self._text(event)
            if text:
                output.note(f"{event.host}: {text}" if event.host else text)

    def _stream(self, event: events.Output) -> None:
        key = (event.host, event.stream)
        *lines, rest = (self._begun.get(key, "") + event.text).split("\n")
        if len(rest) > LONGEST_LINE:
            lines, rest = [*lines, rest], ""
        self._begun[key] = rest
        for line in lines:
            self._print(event.host, event.stream, line)

    def _flush(self, host: str) -> None:
        for (name, stream), rest in self._begun.items():
            if name == host and rest:
                self._print(host, stream, rest)
                self._begun[name, stream] = ""

    def _print(self, host: str, stream: str, line: str) -> None:
        output.note(f"{host} {stream}: {line}")

    def _text(self, event: Event) -> str:
        match event:
            case events.StepStarted():
                return f"{event.step}: {event.text}"
            case events.Chosen():
                return f"fleet sends the data with {event.carrier} ({event.why})"
            case events.Relayed():
                return f"{human_bytes(event.bytes)} from {event.source}"
            case events.Warned():
                return f"warning: {completed(event.text)}"
            case events.DeviceDone():
                sent = human_bytes(event.bytes_sent)
                if event.bytes_relayed:
                    sent += f" sent, {human_bytes(event.bytes_relayed)} received from neighbours"
                else:
                    sent += " sent"
                mark = ", emulated" if event.emulated else ""
                # The results report the reason of a refusal, with the cure.
                why = f" ({event.text})" if event.text and event.outcome != "refused" else ""
                return (
                    f"{event.outcome}{why} in {event.seconds:.1f} s, "
                    f"{event.round_trips} round trips, {sent}{mark}"
                )
        return _of_a_rollout(event)


class SaidLines(_Lines):
    """A listener that prints the output of programs on devices, with the device before each
    line.
    """

    def __init__(self) -> None:
        super().__init__(show_output=True)

    def take(self, event: Event) -> None:
        """Print complete lines, and the last incomplete one when the device is done."""
        if isinstance(event, events.DeviceDone):
            with self._lock:
                self._flush(event.host)
        elif isinstance(event, events.Output | events.Warned):
            super().take(event)

    def _print(self, host: str, stream: str, line: str) -> None:
        (output.say if stream == "stdout" else output.note)(f"{host}: {line}")


def _of_a_rollout(event: Event) -> str:
    match event:
        case events.WaveStarted() | events.Soaking():
            return event.text
        case events.WaveJudged() if event.text:
            return f"wave {event.wave}: {event.text}"
        case events.Looked() | events.RolledBack():
            return f"{event.outcome} ({event.text})"
    return ""


def _cooling(event: events.Cooling) -> str:
    """Return `nspss-0 52 °C, waiting for 45 °C (3:12 left)`."""
    left = f"{int(event.left) // 60}:{int(event.left) % 60:02d}"
    return f"{event.zone} {event.celsius:.0f} °C, waiting for {event.below:g} °C ({left} left)"


def _of(done: int, need: int, about: str) -> str:
    """Return `1.2 of 4.6 GB`, with both units if they differ."""
    first, second = human_bytes(done), human_bytes(need)
    if first.split()[1:] == second.split()[1:]:
        first = first.split()[0]
    return f"{first} of {about}{second}"


def named(hosts: Sequence[str]) -> str:
    """Return `evk-01, evk-02`; of many hosts, the first ones and the number of the others."""
    few = ", ".join(hosts[:MOST_NAMED])
    return few if len(hosts) <= MOST_NAMED else f"{few} and {len(hosts) - MOST_NAMED} more"


def _cut(text: str, room: int) -> str:
    """Return the text shortened to `room` characters: `release 0936842142…`.

    The cut is between two words if that keeps at least half of the text.
    """
    if len(text) <= room:
        return text
    words, _, _ = text[:room].rpartition(" ")
    return (words if 2 * len(words) >= room else text[: room - 1]) + "…"


def _cells(host: str, row: _Row) -> tuple[str, ...]:
    share = f"{human_bytes(row.done)}/{human_bytes(row.total)}" if row.total else ""
    spent = time.monotonic() - row.since
    rate = f"{human_bytes(int(row.done / spent))}/s" if row.done and spent > 0 else ""
    step = row.outcome or row.step
    if not (row.done or row.outcome) and spent >= 1:
        step = f"{step} ({spent:.0f} s)"
    return host or "workstation", step, share, rate, row.text


class _Row:
    """The state of one device in the table."""

    def __init__(self) -> None:
        self.step = ""
        self.text = ""
        self.done = self.total = 0
        self.since = time.monotonic()
        self.outcome = ""
        self.sizes: dict[str, tuple[int, int]] = {}  # per step: bytes done, in total

    def count(self, done: int, total: int) -> None:
        """Set the number of bytes done, and the total of the step."""
        self.done, self.total = done, total
        if total:
            self.sizes[self.step] = done, total

    @property
    def moved(self) -> tuple[int, int]:
        """The bytes done, and the bytes in total. A successful device counts as complete."""
        parts, sizes = map(sum, zip(*self.sizes.values(), strict=True))
        if self.outcome:
            parts = sizes = sizes if self.outcome in _GREEN else parts
        return parts, sizes


class _Board:
    """The live table: step, bytes and rate of each device, and a line for all `total` devices."""

    def __init__(self, total: int = 0) -> None:
        self.live: Live | None = None
        self._total = total
        self._first: tuple[float, int] | None = None  # time and byte count when data began to flow
        self._rows: dict[str, _Row] = {}
        self._warned: dict[str, list[str]] = {}  # warning → the devices that it is about
        self._lock = threading.Lock()
        self._drawn = 0.0

    def take(self, event: Event) -> None:
        """Update the row of a device; draw at most a few times a second."""
        with self._lock:
            row = self._rows.setdefault(event.host, _Row())
            if isinstance(event, events.Warned) and AGAIN not in event.text:
                hosts = self._warned.setdefault(event.text, [])
                hosts += [event.host] * (event.host not in hosts)
            match event:
                case events.StepStarted():
                    row.step, row.text, row.since = event.step, event.text, time.monotonic()
                    row.count(0, event.bytes)
                case events.Progress():
                    row.count(event.done, event.total)
                case events.Relayed():
                    row.text = f"from {event.source}"
                case events.Cooling():
                    row.step, row.text = "cooling", _cooling(event)
                case (
                    events.Warned() | events.WaveStarted() | events.WaveJudged() | events.Soaking()
                ):
                    row.text = event.text
                case events.Looked() | events.RolledBack():
                    row.outcome, row.text = event.outcome, event.text
                case events.DeviceDone():
                    row.outcome, row.text = event.outcome, event.text
                case events.RunDone():
                    row.text = event.record["text"][:60]
            self._draw(at_once=bool(row.outcome))

    def warnings(self) -> list[str]:
        """Return a line for each warning, with the devices that it is about."""
        return [
            ": ".join(filter(None, (named(hosts), f"warning: {completed(text)}")))
            for text, hosts in self._warned.items()
        ]

    def tick(self) -> None:
        """Draw the table again, because the seconds of a step have changed."""
        with self._lock:
            self._draw()

    def _draw(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if self.live and (at_once or now - self._drawn > 1 / REFRESH_PER_SECOND):
            self._drawn = now
            self.live.update(self.view(), refresh=True)

    def whole(self) -> str:
        """Return `12 of 40 done, 3 waiting, 1.2 of 4.6 GB, 38 s left`; "" for a single device.

        The estimate assumes that the waiting devices need as much data as the others.
        """
        rows = [row for host, row in self._rows.items() if host]
        total = max(self._total, len(rows))
        if total < 2:
            return ""
        ended = [row for row in rows if row.outcome]
        failed = sum(row.outcome not in _GREEN for row in ended)
        parts = [f"{len(ended)} of {total} done" + (f" ({failed} failed)" if failed else "")]
        if total > len(rows):
            parts.append(f"{total - len(rows)} waiting")
        sized = [row.moved for row in rows if row.sizes]
        known = sum(size for _, size in sized)
        if known:
            done = sum(part for part, _ in sized)
            unknown = total - len(sized) - sum(not row.sizes for row in ended)
            need = known + unknown * known // len(sized)
            about = "about " if unknown else ""
            parts += [f"{_of(done, need, about)}", *self._left(done, need)]
        return ", ".join(parts)

    def _left(self, done: int, need: int) -> list[str]:
        """Return `38 s left`, from the rate since data began to flow; an empty list without
        a rate.
        """
        now = time.monotonic()
        if self._first is None and done:
            self._first = now, done
        begun, before = self._first or (now, done)
        if done <= before or done >= need or now - begun < 1:
            return []
        seconds = (need - done) * (now - begun) / (done - before)
        return [f"{seconds:.0f} s left" if seconds < 100 else f"{seconds / 60:.0f} min left"]

    def view(self) -> Group:
        """Return the current table; at most one screen, busy devices first."""
        from rich.console import Group  # noqa: PLC0415 - only on a terminal
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False)
        heads = ("device", "step", "sent", "rate", "")
        for column in heads:
            table.add_column(column, no_wrap=True)
        whole = self.whole()
        room = max(5, output.errors.height - 4 - bool(whole))
        rows = sorted(self._rows.items(), key=lambda pair: (bool(pair[1].outcome), pair[0]))
        cells = [_cells(host, row) for host, row in rows[:room]]
        wide = [max(map(len, column)) for column in zip(heads, *cells, strict=True)][:-1]
        left = max(10, output.errors.width - sum(wide) - 2 * len(wide))
        for (_, row), (name, step, *numbers, text) in zip(rows, cells, strict=False):
            colour = "green" if row.outcome in _GREEN else "red"
            word = f"[{colour}]{step}[/]" if row.outcome else step
            table.add_row(name, word, *numbers, output.shown(_cut(text, left)))
        if len(rows) > room:
            table.add_row(f"... {len(rows) - room} more", "", "", "", "")
        return Group(*([Text(whole, "bold", no_wrap=True)] if whole else []), table)
