"""The last refusal or failure of fleet itself on a device, as checks of the doctor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fleet.doctor.checks.making import Maker
from fleet.engine.deploy.plan import plan_device
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.engine.rollout.journal import Journal
from fleet.engine.session import Session
from fleet.model.cause import Cause, Fix
from fleet.model.diagnosis import Check, Evidence, Ranked
from fleet.model.errors import FleetError, InputError
from fleet.model.events import Listener, Warned
from fleet.model.finding import Finding
from fleet.model.playbook import Playbook
from fleet.profiles.runs import RunStore, new_run_id, read_records, record_files
from fleet.runtimes.store import RuntimeStore

MOST_RUNS = 50
LOG_BYTES = 20_000
_LAST = Maker("last-run", "session")
_PREFLIGHT = Maker("preflight", "bundle")


@dataclass(frozen=True)
class RunFailure:
    """The failure of the newest run of a device: step, reason, hint, and the end of its log."""

    run_id: str
    step: str
    text: str
    log: str = ""
    hint: str = ""

    def check(self) -> Check:
        """Return the check for the failure. It only warns, because the failure may be over."""
        at = f" at the step {self.step}" if self.step else ""
        text = f"the last run ({self.run_id}) failed{at}: {self.text or 'no reason was recorded'}"
        return _LAST.warn(text, {"last.run": "failed"}, "fleet deploy --runs", self.text)


def last_failures(runs: RunStore, hosts: Iterable[str]) -> dict[str, RunFailure]:
    """Return the failure of each host whose newest run on this workstation failed."""
    wanted, failed = set(hosts), dict[str, RunFailure]()
    now = new_run_id()  # a run in the future is from a wrong clock
    folders = sorted(runs.root.iterdir(), reverse=True) if runs.root.is_dir() else []
    folders = [folder for folder in folders if folder.name <= now]
    for folder in folders[:MOST_RUNS]:
        if not wanted:
            break
        for host, failure in _of_run(folder, wanted).items():
            wanted.discard(host)
            if failure is not None:
                failed[host] = failure
    return failed


def _of_run(folder: Path, hosts: Iterable[str]) -> dict[str, RunFailure | None]:
    """Return the failure of a run for each host that it has; None for a success."""
    state = Journal.state_of(folder)
    ended: dict[str, RunFailure | None] = {}
    for host in hosts:
        device = state.devices.get(host) if state else None
        if device is not None and device.outcome and not device.fine:
            log = _log(folder / host)
            ended[host] = RunFailure(folder.name, device.step, device.text, log, device.hint)
        elif (folder / host).is_dir():
            ended[host] = _of_records(folder, host)
        elif device is not None and device.outcome:
            ended[host] = None
    return ended


def _of_records(folder: Path, host: str) -> RunFailure | None:
    for path in reversed([path for path in record_files(folder) if path.parts[-3] == host]):
        try:
            (record,) = read_records(path)
        except (FleetError, ValueError):
            continue
        if "failed" in record.problems:
            text = f"the program {record.runner} ended with status {record.status}"
            return RunFailure(folder.name, "run", text, _log(folder / host))
    return None


def _log(folder: Path) -> str:
    """Return the end of the newest error log below a folder of a run, "" for none."""
    logs = sorted(folder.glob("*/stderr.log"), key=lambda path: path.stat().st_mtime)
    return logs[-1].read_bytes()[-LOG_BYTES:].decode("utf-8", "replace") if logs else ""


def builder_of(
    playbook: Playbook | None, runtimes: RuntimeStore, listener: Listener
) -> ReleaseBuilder | None:
    """Return the builder of the playbook without downloads; None if the playbook cannot be used."""
    if playbook is None:
        return None
    try:
        return ReleaseBuilder(playbook, runtimes, listener, offline=True)
    except FleetError as error:
        text = f"the doctor does not check the playbook {playbook.path}: {error.message}"
        listener(Warned("", text))
        return None


def preflight(session: Session, builder: ReleaseBuilder) -> Finding | None:
    """Return the finding that makes a deploy refuse this device; None for none or an unknown
    one.
    """
    try:
        planned = plan_device(session, builder)
    except InputError as error:
        return Finding("plan", "refuse", error.message, "", "", error.hint or error.cure)
    except FleetError:  # such as a runtime that deploy would fetch: no fault of the device
        return None
    return next((finding for finding in planned.plan.findings if finding.refuses), None)


def refusal(finding: Finding, playbook: Playbook, host: str) -> tuple[Check, Ranked]:
    """Return the check and the cause for a deploy that would be refused."""
    text = finding.summary if finding.need else finding.message
    evidence = f"fleet plan {playbook.path}: {text}"
    check = _PREFLIGHT.bad(text, {"preflight": finding.rule}, f"fleet plan -l {host}", text)
    cause = Cause(
        id=f"preflight-{finding.rule}",
        title=f"fleet would refuse to deploy {playbook.name} here: {finding.message}",
        layer="bundle",
        explanation="The device itself may be well: the playbook does not fit it.",
        verify=f"fleet plan -l {host}",
        fix=(Fix("any", finding.cure_on(host), where="host"),),
        sources=(finding.source,) if finding.source else (),
    )
    return check, Ranked(cause, 0.95, (Evidence("pre-flight", evidence),))
