"""`fleet serve` on devices: each method runs on all of them, and errors are in the results."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fleet.device.shell import MARK, device_script
from fleet.engine.deploy.apply import apply_system
from fleet.engine.deploy.operation import Operation
from fleet.engine.deploy.plan import plan_device, plan_system, refuse, require_current
from fleet.engine.lease.lease import Lease
from fleet.engine.pool import DeviceResult, PoolOptions, on_every_device
from fleet.engine.session import Session
from fleet.engine.states import facts_of
from fleet.engine.system.undo import UndoLog, undo_root
from fleet.model.deadline import Deadline
from fleet.model.errors import DeadlineError, DeviceError, InputError, reason
from fleet.model.events import Listener, StepStarted
from fleet.model.facts import Facts
from fleet.model.inventory import Host
from fleet.model.plan import DevicePlan
from fleet.model.playbook import Playbook, RunSpec
from fleet.model.secret import Secret
from fleet.model.system import SystemSpec, WantedFile, WantedUnit
from fleet.ops import serving
from fleet.ops.release import release_dir
from fleet.ops.serving import NONE, SYSTEM, USER, ServiceSeen
from fleet.profiles.runs import new_run_id
from fleet.serving.files import service_config
from fleet.transport.base import PortStream

# /health of a service is requested over the connection to its device.

HEALTH_SECONDS = 10.0
_MOST_BYTES = 64 << 10
_REQUEST = b"GET /health HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"
Dial = Callable[[int, Deadline], PortStream]


class NoHealthError(DeviceError):
    """A program uses the port, but does not report the state of a service."""


def ask_health(dial: Dial, port: int) -> dict[str, Any]:
    """Return the JSON object of /health, whatever its status.

    Raises NoHealthError for a late, broken or foreign answer, and errors of `dial`.
    """
    deadline = Deadline(HEALTH_SECONDS)
    stream = dial(port, deadline)
    late = threading.Timer(deadline.remaining, stream.close)
    late.daemon = True
    late.start()
    answer = bytearray()
    try:
        stream.sendall(_REQUEST)
        while len(answer) < _MOST_BYTES and (chunk := stream.recv(4096)):
            answer.extend(chunk)
    except OSError as error:
        if not deadline.expired:
            raise NoHealthError(
                f"the service at port {port} of the device stopped in the middle of its answer "
                f"to /health: {reason(error)}",
            ) from error
    finally:
        late.cancel()
        stream.close()
    if deadline.expired:
        raise NoHealthError(
            f"the service at port {port} of the device did not answer to /health in time"
        )
    try:
        health = json.loads(bytes(answer).partition(b"\r\n\r\n")[2])
        if not isinstance(health, dict) or "status" not in health:
            raise ValueError
    except ValueError as error:
        raise NoHealthError(
            f"port {port} of the device is in use by a program that fleet did not start; the "
            f"program answers {bytes(answer[:100])!r}",
            hint="set another port in the playbook: `serve: {port: ...}`",
        ) from error
    return health


def health_or_why(dial: Dial, port: int | None) -> tuple[dict[str, Any] | None, DeviceError | None]:
    """Return the content of /health, or None with the reason if it is known."""
    if port is None:
        return None, None
    try:
        return ask_health(dial, port), None
    except NoHealthError as error:
        return None, error
    except (DeviceError, DeadlineError):  # no program uses the port
        return None, None


def belongs(answer: dict[str, Any] | None, name: str) -> bool:
    """Return True if the answer comes from the service with that name."""
    return answer is not None and answer.get("name") == name


UNITS = "/etc/systemd/system/"
TOKEN_BYTES = 32
POLL_SECONDS = 0.3
STOP_MARGIN = 30.0


@dataclass(frozen=True)
class ServiceStatus:
    """The service on one device: its process, its release, and the answer of its health page.

    `health` is empty if the service did not answer.
    """

    state: ServiceSeen
    port: int
    health: Mapping[str, Any]
    emulated: bool
    PLAIN: ClassVar[str] = """**state kept_by=state.kept_by pid=state.pid older=state.older port
        health=answer emulated"""

    @property
    def answer(self) -> Mapping[str, Any] | None:
        """The JSON object of /health, None if the service did not answer."""
        return self.health or None


class Serving:
    """The service of a playbook on hosts."""

    def __init__(
        self, playbook: Playbook, hosts: Sequence[Host], listener: Listener, *, parallel: int = 16
    ) -> None:
        """Prepare the service. Raises InputError for a playbook without `serve:`."""
        if playbook.serve is None:
            raise InputError(
                f"{playbook.path} has no `serve:` section",
                hint="add `serve: {port: 8000}`; see docs/serving.md",
            )
        self.playbook, self.spec = playbook, playbook.serve
        self._hosts, self._say, self._parallel = tuple(hosts), listener, parallel
        self._run_id = new_run_id()

    def start(
        self, operation: Operation, *, unit: str = "auto", again: bool = False
    ) -> list[DeviceResult[None]]:
        """Start the service with the deployed release, which must be the playbook's.

        `unit` is user, system, none (fleet's supervisor), or auto: user if it works. `again` stops
        the service first.
        """

        def work(session: Session, result: DeviceResult[None]) -> None:
            with Lease(session, f"serve {self.playbook.name}", self._run_id) as lease:
                plan = plan_device(session, operation.builder).plan
                result.plan = plan
                require_current(plan)
                lease.take()
                self._start(session, result, operation, unit, again=again)

        return operation.everywhere(work, self._hosts, self._say)

    def _start(
        self,
        session: Session,
        result: DeviceResult[None],
        operation: Operation,
        unit: str,
        *,
        again: bool,
    ) -> None:
        assert result.plan is not None
        plan, name = result.plan, self.playbook.name
        base = plan.facts.base_dir
        state = self._state(session, base)
        kept = state.kept_by
        config = self._config(plan, operation)
        same = state.release == plan.manifest.id and state.config == json.loads(config)
        if kept and same and not again:
            result.outcome = "unchanged"
            result.text = f"the service is already running, supervised by {_keeper(kept)}"
            return
        if kept and not again:
            raise DeviceError(
                f"the service {name} is already running with "
                + (f"release {state.release}" if state.older else "another configuration"),
                hint="fleet serve restart, with the same inventory and playbook",
            )
        chosen = kept if kept and unit == "auto" else unit
        if kept:
            self._end(session, operation, base, kept)
        way = _way(state, chosen, plan.facts, session)
        token = f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode()
        session.emit(StepStarted(session.host.name, "serve", f"start {name} ({_keeper(way)})"))
        put = serving.put_command(base, name, plan.manifest.id)
        session.ask(put, "serve", stdin=[token, config.encode()], mutates=True)
        self._begin(session, operation, plan.facts, way)
        self._wait(session, base)
        result.outcome = "changed"
        result.text = f"ready at port {self.spec.port}, supervised by {_keeper(way)}"
        if not self.spec.private:
            session.warn(
                f"the service listens at {self.spec.bind}, so everybody on the network can reach "
                f"it at port {self.spec.port}; nothing is encrypted, not even the token"
            )

    def _config(self, plan: DevicePlan, operation: Operation) -> str:
        builder = operation.builder
        run = self.playbook.run
        kit = builder.kit(
            run or RunSpec(runner=builder.runner.name), has_tool=False, target=plan.target
        )
        place = release_dir(plan.facts.base_dir, plan.manifest.name, plan.manifest.id)
        return service_config(
            self.playbook,
            plan.manifest,
            runner=builder.runner,
            kit=kit,
            release=place,
            emulated=plan.facts.emulated,
        )

    def _begin(self, session: Session, operation: Operation, facts: Facts, way: str) -> None:
        name, base = self.playbook.name, facts.base_dir
        if way == NONE:
            command = device_script("serve_start", serving.service_dir(base, name))
            session.ask(command, "serve", mutates=True)
        elif way == USER:
            text = serving.unit_text(base, name, self.spec.stop_timeout)
            command = serving.unit_command("start", name)
            session.ask(command, "serve", stdin=[text.encode()], mutates=True)
        else:
            text = serving.unit_text(base, name, self.spec.stop_timeout, facts.user.name or "root")
            unit = serving.unit_name(name)
            self._system(
                session,
                operation,
                SystemSpec(
                    files=(WantedFile(UNITS + unit, text.encode()),),
                    units=(WantedUnit(unit, enabled=True, running=True),),
                ),
            )

    def _system(self, session: Session, operation: Operation, spec: SystemSpec) -> None:
        """Run steps as root like a deploy: planned, and recorded for `fleet undo`."""
        planned = plan_system(session, spec)
        refuse(planned.plan)
        log = UndoLog(undo_root(operation.runs), self._run_id, session.host.name)
        apply_system(session, planned, log, allow_reboot=False)

    def _end(self, session: Session, operation: Operation | None, base: str, kept: str) -> None:
        name, seconds = self.playbook.name, self.spec.stop_timeout + STOP_MARGIN
        session.emit(StepStarted(session.host.name, "serve", f"stop {name}"))
        if kept == NONE:
            command = serving.stop_command(base, name, self.spec.stop_timeout + 5)
            session.ask(command, "serve", seconds=seconds, mutates=True)
        elif kept == USER:
            command = serving.unit_command("stop", name)
            session.ask(command, "serve", seconds=seconds, mutates=True)
        else:
            unit = WantedUnit(serving.unit_name(name), enabled=False, running=False)
            operation = operation or Operation(self.playbook, self._hosts, self._say)
            self._system(session, operation, SystemSpec(units=(unit,)))

    def _wait(self, session: Session, base: str) -> dict[str, Any]:
        """Wait until /health reports ready. Raises DeviceError with the last lines of the log."""
        limit, pause = Deadline(self.playbook.health_timeout), threading.Event()
        name = self.playbook.name
        while True:
            session.check()
            answer, silent = health_or_why(session.transport.dial, self.spec.port)
            if answer is not None and belongs(answer, name) and answer.get("ready"):
                return answer
            state = self._state(session, base)
            over = state.failed or state.kept_by is None or limit.expired
            if over or (state.restarts or 0) >= 3:
                why = " | ".join(self._log(session, base, 6).splitlines()[-4:])
                also = f"; {silent.message}" if silent else ""
                raise DeviceError(
                    f"the service {name} did not become ready: {why or 'the log is empty'}{also}",
                    step="serve",
                    hint=(silent.hint if silent else "")
                    or "fleet serve logs, then fleet serve stop, with the same inventory "
                    "and playbook",
                )
            pause.wait(POLL_SECONDS)

    def _state(self, session: Session, base: str) -> ServiceSeen:
        command = serving.state_command(base, self.playbook.name)
        text = session.ask(command, "serve").text
        return serving.parse_service(text, session.host.name)

    def _log(self, session: Session, base: str, lines: int) -> str:
        folder, most = serving.service_dir(base, self.playbook.name), serving.LOG_LINES
        done = session.run(device_script("serve_logs", folder, str(min(lines, most))), "logs")
        return done.stdout.partition(MARK)[2].decode("utf-8", "replace")

    def status(self) -> list[DeviceResult[ServiceStatus]]:
        """Return the state of the service on each device. It only reads."""

        def work(session: Session, result: DeviceResult[ServiceStatus]) -> None:
            facts = facts_of(session)
            state = self._state(session, facts.base_dir)
            port = state.port or self.spec.port
            answer, silent = health_or_why(session.transport.dial, port)
            answer = answer if belongs(answer, self.playbook.name) else None
            result.outcome, result.text = _judged(state, answer, silent.message if silent else "")
            result.value = ServiceStatus(state, port, answer or {}, facts.emulated)

        return on_every_device(self._hosts, work, self._say, PoolOptions(parallel=self._parallel))

    def stop(self) -> list[DeviceResult[None]]:
        """Stop the service, whoever supervises it. Running jobs may finish within the stop
        timeout.
        """

        def work(session: Session, result: DeviceResult[None]) -> None:
            with Lease(session, f"serve {self.playbook.name}", self._run_id) as lease:
                base = facts_of(session).base_dir
                kept = self._state(session, base).kept_by
                result.outcome = "unchanged" if kept is None else "changed"
                result.text = "the service is not running" if kept is None else "stopped"
                if kept is not None:
                    lease.take()
                    self._end(session, None, base, kept)

        return on_every_device(self._hosts, work, self._say, PoolOptions(parallel=self._parallel))

    def logs(self, lines: int) -> list[DeviceResult[str]]:
        """Read the last `lines` lines of the service's log on each device."""

        def work(session: Session, result: DeviceResult[str]) -> None:
            result.value = self._log(session, facts_of(session).base_dir, lines)
            result.outcome = "ok"

        return on_every_device(self._hosts, work, self._say, PoolOptions(parallel=self._parallel))

    def token(self, *, new: bool = False) -> list[DeviceResult[Secret]]:
        """Read the token of each device; `new` first replaces the token, at once."""

        def work(session: Session, result: DeviceResult[Secret]) -> None:
            base, name = facts_of(session).base_dir, self.playbook.name
            if new:
                with Lease(session, f"serve {name}", self._run_id) as lease:
                    lease.take()
                    fresh = f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode()
                    put = serving.put_command(base, name, "", new_token=True)
                    session.ask(put, "token", stdin=[fresh], mutates=True)
            path = f"{serving.service_dir(base, name)}/token"
            done = session.run(device_script("show", path), "token")
            token = done.stdout.partition(MARK)[2].decode("ascii", "replace").strip()
            if not token:
                raise DeviceError("the service has no token yet", hint="fleet serve start")
            result.value = Secret(token)
            result.outcome = "changed" if new else "ok"

        return on_every_device(self._hosts, work, self._say, PoolOptions(parallel=self._parallel))


def _way(state: ServiceSeen, wanted: str, facts: Facts, session: Session) -> str:
    """Return `wanted`, or for `auto` the best supervisor. Raises DeviceError and InputError."""
    if facts.tools.python3 is None:
        raise DeviceError(
            "the server needs python3, but the device does not have it",
            hint="run on the device: sudo apt install python3",
        )
    if wanted == USER and not state.user_systemd:
        raise InputError(
            "systemctl --user does not work on the device",
            hint="add --unit system (needs root), or --unit none",
        )
    way = (USER if state.user_systemd else NONE) if wanted == "auto" else wanted
    if way == USER and state.linger != "yes":
        session.warn(
            "the service stops when its user logs out, and does not start at boot; run on the "
            "device: "
            f"sudo loginctl enable-linger {facts.user.name or 'USER'}; or give --unit system"
        )
    if way == NONE:
        session.warn(
            "the service will not start after a reboot, because systemd does not supervise it"
        )
    return way


def _judged(state: ServiceSeen, answer: dict[str, Any] | None, why: str = "") -> tuple[str, str]:
    """Return (outcome, sentence) of a service.

    The outcome is `failed` for a service that cannot start, or is running without an `answer` to
    /health; `why` is the error of that question. A stopped service is `ok`.
    """
    older = "; the service is running an older release: fleet serve restart" if state.older else ""
    if state.kept_by is None and state.failed:
        return "failed", "the service cannot start: fleet serve logs"
    if state.kept_by is None:
        return "ok", "stopped"
    if answer is None:
        why = f" ({why})" if why else ""
        return "failed", f"the service is running but does not answer{why}: fleet serve logs"
    return "ok", f"{answer['status']}{older}"


def _keeper(way: str) -> str:
    return {USER: "the user's systemd", SYSTEM: "systemd", NONE: "fleet's supervisor"}[way]
