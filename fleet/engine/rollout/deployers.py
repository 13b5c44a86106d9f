"""Who brought a release to a device, as far as the journals of this workstation tell."""

from __future__ import annotations

from collections.abc import Collection

from fleet.engine.rollout.claim import NAME
from fleet.engine.rollout.journal import Journal
from fleet.model.errors import InputError
from fleet.profiles.runs import RunStore

MOST = 200  # journals that are read, the newest first
Place = tuple[str, str]  # a device and the id of a release


def deployers(runs: RunStore, places: Collection[Place]) -> dict[Place, str]:
    """`user@workstation` of the last deploy that switched a device to a release; a place that no
    journal tells of is not there.
    """
    found: dict[Place, str] = {}
    for path in sorted(runs.root.glob(f"*/{NAME}"), reverse=True)[:MOST]:
        if len(found) == len(places):
            break
        try:
            state = Journal.read(path)
        except InputError:  # damaged, or not begun: `fleet resume --list` says so
            continue
        for device in state.devices.values():
            place = device.name, device.release
            if device.switched and place in places:
                by = state.header.get("owner") or state.header["workstation"]
                found.setdefault(place, str(by))
    return found
