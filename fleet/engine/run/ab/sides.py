"""The sides A and B on one board: stored releases, or releases of two playbooks staged beside them.

Nothing is switched. A run starts in the folder of its release, whatever `current` is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.config.playbook import load_playbook
from fleet.engine.deploy.plan import plan_device, refuse
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.engine.deploy.releases import stored_manifest
from fleet.engine.deploy.switch import carry_out
from fleet.engine.session import Session
from fleet.engine.status import deployed
from fleet.model.errors import DeviceError, InputError
from fleet.model.events import Listener
from fleet.model.manifest import Manifest
from fleet.model.plan import DevicePlan, PruneReleases, SwitchRelease
from fleet.model.playbook import Playbook, RunSpec
from fleet.model.text import from_here
from fleet.runtimes.store import RuntimeStore

# The settings of a playbook for repeats, which `fleet ab` decides itself.
_OWN: dict[str, Any] = {"warmups": 0, "repeats": 1, "until": None, "sustained": None}


@dataclass(frozen=True)
class AbSide:
    """A side of a comparison, with the way its release is made and started.

    If `release` is "", the side runs the release of the playbook.
    """

    word: str
    builder: ReleaseBuilder
    release: str = ""

    @property
    def shown(self) -> str:
        """The word of the command line; a file below this folder as a relative path."""
        return from_here(self.word)

    @property
    def playbook_shown(self) -> str:
        """The path of the playbook to show, which has the run settings."""
        return from_here(str(self.builder.playbook.path))

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of `run:` in its playbook that the pairs follow, by key."""
        run = replace(self.builder.playbook.run or RunSpec(), **_OWN)
        return {key: str(value) for key, value in vars(run).items() if key != "unsaid"}

    def on(self, session: Session, run_id: str, measured: Collection[str] = ()) -> DevicePlan:
        """Return the plan of this side on the board, and stage missing files beside the live
        release.

        `measured` are the release ids of earlier runs of this side. Raises InputError for another
        release before anything is sent. Raises DeviceError for a release that the device does not
        have.
        """
        plan = plan_device(session, self.builder).plan
        if self.release:
            plan = replace(plan, manifest=self._stored(session, plan))
        others = sorted(set(measured) - {plan.manifest.id})
        if others:
            raise InputError(
                f"{self.shown} is another release than the one that {run_id} measured: "
                f"{plan.manifest.id} now, {', '.join(others)} before",
                hint=f"restore the files of {self.shown}, or name the earlier release; or begin a "
                "new comparison: fleet ab A B",
            )
        if self.release:
            return plan
        refuse(plan)
        later = SwitchRelease, PruneReleases
        steps = [step for step in plan.release_steps if not isinstance(step, later)]
        if steps:
            self.builder.bring(plan)
            carry_out(session, plan.facts, plan.manifest, steps, run_id)
        return plan

    def _stored(self, session: Session, plan: DevicePlan) -> Manifest:
        name, base = plan.manifest.name, plan.facts.base_dir
        known = {release.name: release for release in deployed(session, base)[0]}
        mine = known.get(name)
        words = {"current": mine.id, "previous": mine.previous} if mine else {}
        ids = [*dict.fromkeys(mine.history)] if mine else []
        wanted = words.get(self.release) or self.release
        matches = [release for release in ids if release.startswith(wanted)]
        if len(matches) != 1:
            raise DeviceError(
                f"'{self.release}' must match exactly one release of {name}, but the device has "
                f"{len(matches)} releases that match",
                device=session.host.name,
                hint="fleet status --json (shows the history)",
            )
        return stored_manifest(session, base, name, matches[0], whole=True)


def side_of(
    word: str, playbook: str, store: RuntimeStore, listener: Listener, *, offline: bool = False
) -> AbSide:
    """Return the side for a word of the command line: a playbook, a bundle folder, or a release.

    A word with the ending .yaml or .yml is a playbook, a folder a bundle, any other word a release.
    A bundle or a release needs `playbook`, and each playbook needs `run:`; raises InputError
    otherwise. With `offline`, nothing is downloaded.
    """
    path = Path(word)
    if path.suffix in {".yaml", ".yml"}:
        return AbSide(word, _builder(load_playbook(path), store, listener, offline=offline))
    if not playbook:
        raise InputError(
            f"'{word}' is a release or a bundle, so fleet needs its playbook",
            hint="add the playbook: fleet ab A B --playbook PLAYBOOK",
        )
    loaded = load_playbook(Path(playbook))
    if path.is_dir():
        loaded = replace(loaded, bundle=path.resolve())
        return AbSide(word, _builder(loaded, store, listener, offline=offline))
    return AbSide(word, _builder(loaded, store, listener, offline=offline), word)


def not_measured(sides: Sequence[AbSide]) -> list[str]:
    """Return notes for people: settings of A and B that are ignored, and identical sides."""
    books = [side.builder.playbook for side in sides]
    runs = [book.run or RunSpec() for book in books]
    differ = [name for name in _OWN if len({getattr(run, name) for run in runs}) > 1]
    notes = []
    if differ:
        notes.append(
            f"A and B set {', '.join(differ)} differently, but `fleet ab` ignores these "
            "settings: it warms up until the values are steady, then runs A and B once per "
            "pair"
        )
    same = [
        replace(book, path=Path(), name="", run=replace(run, **_OWN))
        for book, run in zip(books, runs, strict=True)
    ]
    if same[0] == same[1] and not any(side.release for side in sides):  # else the board knows
        notes.append("A and B have the same settings and files, so fleet expects no difference")
    return notes


def _builder(
    playbook: Playbook, store: RuntimeStore, listener: Listener, *, offline: bool
) -> ReleaseBuilder:
    if playbook.run is None:
        raise InputError(f"{playbook.path} has no `run:` section", hint="add it: docs/playbook.md")
    return ReleaseBuilder(playbook, store, listener, offline=offline)
