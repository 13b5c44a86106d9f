"""The gates of `fleet ab`: parsed, and checked before a device is contacted."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.config.playbook import load_playbook
from fleet.model.errors import FleetError, InputError
from fleet.model.metrics import KNOWN, LOSS, TIME_LOSS, limit_text
from fleet.profiles.compare.metrics import every, lacking, loss_text

if TYPE_CHECKING:
    from fleet.engine.run.ab.journal import AbJournal
    from fleet.model.record import Record

_EXAMPLES = f"--gate '{LOSS}' or --gate '{TIME_LOSS}'"
_EARLIER = 200  # the newest records that are searched


def limits_of(texts: list[str]) -> dict[str, float]:
    """Return the share of each metric in the `--gate` texts.

    Raises InputError for a text without a share, and for a share in the direction of an
    improvement. Also raises it for a fall of 100 % or more, and for two gates on one metric.
    """
    from fleet.profiles.compare.gates import parse, refuse_wrong_way  # noqa: PLC0415 - numpy

    limits: dict[str, float] = {}
    for text in texts:
        gate = parse(text, "--gate", _EXAMPLES)
        share = gate.word is None and gate.unit == "%"
        if share:
            refuse_wrong_way(gate, option="--gate")
        if not share or gate.below != (gate.limit < 0) or gate.limit <= -1:
            raise InputError(
                f"--gate {text!r} is not valid; write METRIC<-N% to fail if the metric falls by "
                "more than N% (below 100), or METRIC>+N% to fail if it rises by more than N%",
                hint=f"for example {_EXAMPLES}",
            )
        if gate.metric in limits:
            strict = min(gate.limit, limits[gate.metric], key=abs)
            raise InputError(
                f"--gate {text!r} is the second gate on {gate.metric}; one metric has one gate",
                hint=f"keep the stricter gate: {_typed(strict, gate.metric)}",
            )
        limits[gate.metric] = gate.limit
    return limits


def asked(texts: list[str], words: Sequence[str | Path | None]) -> dict[str, float]:
    """Return the gates, checked against earlier runs of the playbooks among the words.

    Raises InputError for an invalid gate. Also raises it for a metric that no earlier run has, if
    its name is similar to one that they have. Any other unknown name is accepted, because the first
    run may introduce it.
    """
    from fleet.profiles.compare.gates import parse, refuse_wrong_way  # noqa: PLC0415 - numpy

    limits = limits_of(texts)
    playbooks = [Path(word) for word in words if word and Path(word).is_file()]
    unsure = [name for name in limits if name not in KNOWN]
    earlier = _earlier(playbooks) if unsure else []
    there = every(earlier)
    for name in unsure:
        refuse_wrong_way(parse(limit_text(name, limits[name])), earlier, "--gate")
        if name not in there and get_close_matches(name, there, n=1):
            option = partial(_loss, earlier, limits[name])
            raise lacking(name, earlier, "earlier run", option)
    return limits


def _typed(share: float, metric: str) -> str:
    return f"--gate '{limit_text(metric, share)}'"


def _loss(records: Sequence[Record], share: float, metric: str) -> str:
    return f"--gate '{loss_text(metric, share, records)}'"


def _earlier(playbooks: list[Path]) -> list[Record]:
    from fleet.cli.profiles_store import opened  # noqa: PLC0415 - the database
    from fleet.profiles.store import select  # noqa: PLC0415

    names = set()
    try:
        for path in playbooks:
            names.add(f"name:{load_playbook(path).name}")
        query = select.parse(",".join(["counted:yes", *sorted(names)]))
    except FleetError:  # the error is reported when the playbook is needed
        return []
    with opened(None) as store:
        return store.records(query, _EARLIER)


def refuse_others(journal: AbJournal, texts: list[str], limit: Sequence[str] | None = None) -> None:
    """Raise InputError if `--resume` comes with other gates than before, or with a choice of
    devices.

    Gates and devices decided how long fleet measures, so they cannot change.
    """
    if limit:
        journal.close()
        raise InputError(
            f"the comparison {journal.run_id} has the devices {', '.join(journal.asked.hosts)}; "
            "they cannot be changed",
            hint=f"fleet ab --resume {journal.run_id} (continues with all of them)",
        )
    held = dict(journal.asked.limits)
    if not texts or limits_of(texts) == held:
        return
    typed = " ".join(f"--gate {text!r}" for text in texts)
    has = " ".join(_typed(share, name) for name, share in held.items()) or "the default gate"
    journal.close()
    raise InputError(
        f"the comparison {journal.run_id} has {has}, not {typed}; its gates cannot be changed, "
        "because they decided how long fleet measured",
        hint=f"fleet ab --resume {journal.run_id} (continues with {has}); or begin a new "
        "comparison with the other gate",
    )
