"""Packages and their sources: what to add, refresh, install and remove."""

from __future__ import annotations

from fleet.model.finding import Finding
from fleet.model.plan import Action
from fleet.model.system import REMOVE, FileSeen, Repository, SystemSpec, SystemState
from fleet.ops.system.packaging import qnn_packages
from fleet.ops.system.steps_files import NOT_THERE, PlaceFiles
from fleet.ops.system.steps_packages import (
    AddRepository,
    InstallPackages,
    RefreshPackages,
    RemovePackages,
    RepairPackages,
    key_path,
    list_path,
)
from fleet.ops.system.wanted import deb_name, repository_files

Steps = tuple[list[Action], list[Action]]


def package_steps(
    spec: SystemSpec, state: SystemState, also: tuple[str, ...], base: str
) -> tuple[Steps, list[Finding]]:
    """(before groups are made, after), and what stands in the way.

    `also` are packages that a recipe needs. For names that no list of the device has, the
    lists are refreshed first.
    """
    if state.manager is None and (spec.packages or spec.debs or spec.repositories):
        return ([], []), [_no_manager(spec)]
    debs = [f"{base}/staged/{deb.name}" for deb in spec.debs if not _has_deb(state, deb.name)]
    names = [name for name in (*also, *spec.packages) if not _has(state, name)]
    names = list(dict.fromkeys(names))
    before: list[Action] = []
    if (names or debs) and (halfway := _halfway(state)):
        before.append(RepairPackages(halfway))
    added = [
        repository
        for repository in spec.repositories
        if not _has_repository(spec, state, repository)
    ]
    before += [AddRepository(repository, base, _seen(state, repository)) for repository in added]
    unknown = [name for name in names if state.candidate(name.partition("=")[0]) is None]
    if added or unknown:
        before.append(RefreshPackages(state.manager or "apt"))
    after: list[Action] = []
    if debs:
        after.append(PlaceFiles(spec.debs, f"{base}/staged"))
    if names or debs:
        after.append(InstallPackages((*debs, *names), state.manager or "apt"))
    after += _removals(spec, state)
    return (before, after), [_not_listed(unknown)] if unknown and not added else []


def _has(state: SystemState, wish: str) -> bool:
    """`name` or `name=version` is installed."""
    name, _, version = wish.partition("=")
    there = state.installed(name)
    return there is not None and version in {"", there}


def _has_deb(state: SystemState, file_name: str) -> bool:
    package, version = deb_name(file_name)
    there = state.installed(package)
    return there is not None and there.rpartition(":")[2] == version


def _halfway(state: SystemState) -> tuple[str, ...]:
    return tuple(sorted(name for name, seen in state.packages.items() if not seen.whole))


def _has_repository(spec: SystemSpec, state: SystemState, repository: Repository) -> bool:
    """Both of its files are there, as they should be."""
    return all(
        (seen := state.files.get(path)) is not None and seen.content == content
        for path, content in repository_files(spec)[repository.name]
    )


def _seen(state: SystemState, repository: Repository) -> tuple[FileSeen, FileSeen]:
    key, source = key_path(repository.name), list_path(repository.name)
    return state.files.get(key, NOT_THERE), state.files.get(source, NOT_THERE)


def _removals(spec: SystemSpec, state: SystemState) -> list[Action]:
    if spec.distribution_qnn != REMOVE or state.manager != "apt":
        return []
    wanted = {name.partition("=")[0] for name in spec.packages}
    there = [(name, state.installed(name)) for name in qnn_packages() if name not in wanted]
    gone = tuple((name, version) for name, version in there if version is not None)
    return [RemovePackages(gone)] if gone else []


def _no_manager(spec: SystemSpec) -> Finding:
    wanted = [*spec.packages, *(deb.name for deb in spec.debs)]
    return Finding(
        rule="system-packages",
        severity="refuse",
        message="the playbook lists packages, but the device has neither apt nor opkg",
        have="no package manager",
        need=", ".join(wanted) or "a repository",
        cure="use a system image with these packages, or copy single files with `system.files` "
        "in the playbook",
    )


def _not_listed(names: list[str]) -> Finding:
    return Finding(
        rule="system-packages",
        severity="warn",
        message=f"the package lists of the device do not contain {', '.join(names)}; fleet will "
        "refresh the lists first",
        have="not listed",
        need=", ".join(names),
        cure="if the refreshed lists do not contain these packages either, add their repository "
        "under `system.repositories` in the playbook",
    )
