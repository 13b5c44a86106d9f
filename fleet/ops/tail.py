"""What follows the blobs: in the same stream where a program of the device's takes it, else in one
command of its shell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from fleet.device.shell import device_script
from fleet.model.command import Command, script
from fleet.model.errors import DeviceError
from fleet.model.facts import Facts
from fleet.model.manifest import Manifest
from fleet.model.masking import masked
from fleet.model.plan import Action, PruneReleases, StageRelease, SwitchRelease
from fleet.ops.staging import check_names, stage_frame
from fleet.ops.upload import Receipt

NAMES: dict[type[Action], str] = {
    StageRelease: "stage",
    SwitchRelease: "switch",
    PruneReleases: "prune",
}


@dataclass(frozen=True)
class Step:
    """One step behind the blobs: its name, a line for people, and its frame of the stream."""

    name: str
    says: str
    frame: Callable[[], bytes]


def steps_for(actions: Sequence[Action], facts: Facts, run_id: str) -> tuple[Step, ...]:
    """Of stage, switch and prune, in their order; a frame is made when its turn comes.

    Raises InputError for a name with a tab.
    """
    found = []
    frame: Callable[[], bytes]
    for one in actions:
        match one:
            case StageRelease():
                check_names(one.manifest)
                frame = partial(stage_frame, facts, one.manifest, run_id)
            case SwitchRelease():
                frame = f"switch {one.name} {one.id} {run_id}\n".encode
            case PruneReleases():
                frame = f"prune {one.name} {one.keep}\n".encode
            case _:
                raise NotImplementedError(type(one).__name__)
        found.append(Step(NAMES[type(one)], one.describe(), frame))
    return tuple(found)


def goes_at_once(actions: Sequence[Action], facts: Facts) -> bool:
    """Whether these can be done by `at_once`. An archive that was cut is known by its end."""
    return [type(one) for one in actions] == list(NAMES) and facts.tools.tar and not facts.windows


def at_once(facts: Facts, manifest: Manifest, run_id: str, keep: int) -> Command:
    """Stage, switch and prune, each begun when the one before has succeeded.

    Its standard input is that of `stage_command`, its answers are those of fleet_release.py; what
    fails after the line `switched` is the pruning.
    """
    stage, switch, prune = (device_script(one).argv[2] for one in ("stage_tar", "switch", "prune"))
    text = f'(\n{stage}) || exit\n(\n{switch}) || exit\nset -- "$1" "$2" "$5"\n{prune}'
    return script(text, facts.base_dir, manifest.name, manifest.id, run_id, str(keep))


def check_steps(receipt: Receipt, steps: Collection[Step], host: str, stderr: str) -> None:
    """Raise the DeviceError of the first that was not done; pruning may fail."""
    for one in steps:
        if one.name in receipt.done or one.name == "prune":
            continue
        name, why = receipt.wrong
        words = why if name == one.name else masked(stderr)[-300:] or "no answer"
        raise DeviceError(f"{one.name} failed: {words}", device=host, step=one.name)
