"""A reference → the model to get, and the job that made it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet.bundles.aihub.hub import Hub, Message
from fleet.model.deadline import Deadline
from fleet.model.errors import AiHubError, InputError

POLL_SECONDS = 10.0  # what the client itself waits between two looks
_SCHEME = "aihub:"
_ID = re.compile(r"^[A-Za-z0-9]{2,64}$")
_ENDED = ("done", "failed")


@dataclass(frozen=True)
class HubSource:
    """A model, as the client's messages. `job` is None for an uploaded model."""

    model: Message
    job: Message | None
    job_id: str
    kind: str  # compile, link, quantize; "" without a job
    state: str
    tools: dict[str, str]


def checked_id(reference: str) -> str:
    """`aihub:jabc123` → `jabc123`. Raises InputError."""
    scheme, found, name = reference.partition(":")
    if f"{scheme}:" != _SCHEME or not found or not _ID.match(name):
        raise InputError(
            f"'{reference}' is not a job or model of AI Hub",
            hint="fleet bundle pull aihub:ID (ID is the end of the address of the "
            "job's page, /jobs/ID/)",
        )
    return name


def find(hub: Hub, name: str, wait_seconds: float, say: Callable[[str], None]) -> HubSource:
    """The model of a job, or a model by its own id. Ids of jobs begin with `j`.

    A job that still runs is waited for up to `wait_seconds`. Raises AiHubError when it failed
    or still runs, InputError for a job that makes no model.
    """
    if not name.startswith("j"):
        model = hub.model(name)
        if not model.producer_id:
            return HubSource(model, None, "", "", "", {})
        name = model.producer_id
    kind, job, state = _ended(hub, name, wait_seconds, say)
    if not job.HasField("target_model"):
        raise AiHubError(
            f"job {name} is done, but its result contains no model",
            hint="check the job on the AI Hub web page",
        )
    model = hub.model(job.target_model.model_id)  # complete only now
    return HubSource(model, job, name, kind, state, _tools(hub, name, kind))


def date_of(stamp: Message) -> str | None:
    """A time of AI Hub in UTC, ISO 8601; None when there is none."""
    return datetime.fromtimestamp(stamp.seconds, UTC).isoformat() if stamp.seconds else None


def _ended(
    hub: Hub, name: str, seconds: float, say: Callable[[str], None]
) -> tuple[str, Message, str]:
    deadline = Deadline(seconds)
    told = ""
    while True:
        kind, job = _opened(hub, name)
        state = hub.state_of(job.job_state)
        if state in _ENDED or deadline.expired:
            break
        if state != told:
            say(f"job {name}: {state}, waiting for up to {deadline.remaining:.0f} s")
            told = state
        time.sleep(min(POLL_SECONDS, deadline.remaining))
    if state == "failed":
        reason = hub.clean(job.failure_reason) or "AI Hub gives no reason"
        raise AiHubError(
            f"the {kind} job {name} failed on AI Hub: {reason}",
            hint="correct the model or the compile options, submit a new job, and pull the new job",
        )
    if state != "done":
        raise AiHubError(
            f"the {kind} job {name} is not finished on AI Hub; its state is {state}",
            hint=f"fleet bundle pull aihub:{name} --wait 3600",
        )
    return kind, job, state


def _opened(hub: Hub, name: str) -> tuple[str, Message]:
    message = hub.job(name)
    field = message.WhichOneof("job") or ""
    kind = field.removesuffix("_job")
    if kind not in {"compile", "link", "quantize"}:
        inner = getattr(message, field).model.model_id if field else ""
        raise InputError(
            f"job {name} is of {(f'kind {kind}' if kind else 'an unknown kind')}, and such a "
            "job produces no model",
            hint=f"fleet bundle pull aihub:{inner} (pulls the model of this job)"
            if inner
            else "give the id of the compile or link job: fleet bundle pull aihub:ID",
        )
    return kind, getattr(message, field)


def _tools(hub: Hub, name: str, kind: str) -> dict[str, str]:
    """Tool versions by name; a result that is not kept any more is no failure."""
    try:
        result = getattr(hub.job_result(name), f"{kind}_job_result")
    except InputError:
        return {}
    detail = getattr(result, f"{kind}_detail")
    return {tool.name: tool.version for tool in getattr(detail, "tool_versions", ())}
