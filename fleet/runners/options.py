"""The options of runners: `run.options` of a playbook, checked by a model of each runner."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import StructMeta

from fleet.config.problems import Problems
from fleet.config.shape import Body, Walker, keys_of
from fleet.config.yamlpos import plain
from fleet.model.bundle import Bundle
from fleet.model.errors import InputError, reason
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.runners.base import FLAT, Ended, Kit, Layout, Start

TIMED_OUT = (124, 137)


class _OptionsMeta(StructMeta):
    """A metaclass by which a required option may follow an option with a default."""

    def __new__(mcs, *parts: Any, **how: Any) -> Any:  # noqa: ANN401
        return super().__new__(mcs, *parts, **{"kw_only": True, **how})


class Options(Body, frozen=True, metaclass=_OptionsMeta):
    """The options of a runner, each key with its type and default; other keys are errors."""


T = TypeVar("T", bound=Options)


def parsed(model: type[T], given: Mapping[str, Any], runner: str) -> T:
    """Return the options as values. Raises InputError that names all wrong keys."""
    problems = Problems(InputError)
    options: T = Walker(plain(given, Path()), problems).value(model, dict(given), ())
    if errors := problems.errors:
        known = ", ".join(keys_of(model)) or "none"
        raise InputError(
            "; ".join(error.message for error in errors) + ", under `run: options:`",
            hint=f"{'; '.join(error.hint for error in errors)}; runner {runner} takes: {known}",
        )
    return options


class Defaults:
    """The properties of a runner, and defaults for what most runners do not have.

    A runner derives from this class. `options` reads `run.options` of a playbook (a class of
    `fleet.runners.options.Options`). `default_for` are the kinds of bundles for which this runner
    is the default.

    If `needs_prompt`, a playbook must have a prompt, unless one of the options `instead_of_prompt`
    is set. `needs_program` means that a playbook must name the program; the text is an example of
    its path. `formats` are those of fleet/model/metrics.py that it reads.

    If `python`, the runner brings packages for the Python of the device. `windows` has the places
    of its files on Windows; None means that Windows is not supported. `fleet/data/runners.json` is
    generated from these members.
    """

    name = ""
    kinds: tuple[str, ...] = ()
    options: type[Options] | None = None
    default_for: tuple[str, ...] = ()
    needs_prompt = False
    instead_of_prompt: tuple[str, ...] = ()
    needs_program = ""
    formats: tuple[str, ...] = ()
    python = False
    windows: Layout | None = None

    def check(self, run: RunSpec) -> None:
        """Check the options, and that the playbook names a program if the runner needs one."""
        if self.options is not None:
            parsed(self.options, run.options, self.name)
        if self.needs_program and run.program is None:
            raise InputError(
                f"the runner {self.name} needs a program that you build yourself, but the playbook "
                "has no `run: program:`",
                hint=f"add `program: {self.needs_program}`",
            )

    def example(self, _bundle: Bundle) -> str:
        """Return an example of the path of the program that a bundle needs; "" for none."""
        return self.needs_program

    def opens(self, _kit: Kit) -> tuple[str, ...]:
        """Return release names of files that a run opens but that are named nowhere else.

        These names are not in its command line, the bundle or runtime_files.yaml. If such a file is
        not sent, the plan is refused.
        """
        return ()

    def features(self, _bundle: Bundle, _run: RunSpec) -> tuple[str, ...]:
        """Return the features of the runtime that the run needs beyond the row `runtime`.

        They are names of the rows of `features` in runtime_files.yaml.
        """
        return ()

    def uses_npu(self, _bundle: Bundle, _run: RunSpec) -> bool:
        """Return whether a run opens a session of the NPU.

        If not, no library of the HTP is sent, and chip and FastRPC are not checked.
        """
        return True

    def carried_qairt(self, _run: RunSpec) -> Path | None:
        """Return the folder on this workstation with the QAIRT libraries of the program."""
        return None

    def corrected(self, _kit: Kit) -> tuple[FileRef, ...]:
        """Return files that are sent in place of bundle files with the same names."""
        return ()

    def fitted(self, _run: RunSpec) -> Self:
        """Return the runner for one `run:` of a playbook.

        It is another runner if the options change the members.
        """
        return self


def has_program(run: RunSpec, runner: str, whose: str, without: str) -> None:
    """Raise InputError if the playbook names a program, but the runner has its own program.

    `without` names the keys that are not allowed under `run:`.
    """
    if run.program is not None or (run.libraries and "libraries" in without):
        raise InputError(
            f"the playbook sets a program, but the runner {runner} always uses {whose}",
            hint=f"remove {without} from `run:` in the playbook",
        )


class OwnProgram(Defaults):
    """A base class of runners that start a program of the playbook."""

    layout = FLAT

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """Return the program and its libraries."""
        return own_files(kit.run, self.layout)


def own_files(run: RunSpec, layout: Layout) -> tuple[FileRef, ...]:
    """Return the playbook's program and libraries under release names.

    Raises InputError if two files would have the same name.
    """
    files: dict[str, FileRef] = {}
    if run.program is not None:
        name = layout.named(f"bin/{run.program.name}")
        files[name] = _ref(run.program, name, executable=True)
    for path in run.libraries:
        name = layout.named(f"lib/{path.name}")
        if name in files and files[name].source != path:
            raise InputError(
                f"{files[name].source} and {path} would both have the name {name} on the device",
                hint="rename one of the two files",
            )
        files.setdefault(name, _ref(path, name, executable=False))
    return tuple(files[name] for name in sorted(files))


def _ref(path: Path, name: str, *, executable: bool) -> FileRef:
    try:
        return file_ref(path, name, executable=executable)
    except OSError as error:
        raise InputError(
            f"cannot read {path}, a file that the playbook uses: {reason(error)}",
            hint=f"check the path and its permissions: ls -l {path}",
        ) from error


def program(run: RunSpec, layout: Layout) -> str:
    """Return the path of the program in the release, for argv."""
    name = run.program.name if run.program else ""
    return "{release}/" + layout.named(f"bin/{name}")


def only(bundle: Bundle, patterns: tuple[str, ...], what: str, key: str) -> str:
    """Return the only file of the bundle that matches. Raises InputError that lists the files if
    not.
    """
    names = [item.name for item in bundle.files]
    for pattern in patterns:
        matches = [name for name in names if fnmatchcase(name.rpartition("/")[2], pattern)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise InputError(
                f"the bundle has several files that could be the {what}: {', '.join(matches)}",
                hint=f"choose one in the playbook, under `run: options:`: `{key}: {matches[0]}`",
            )
    have = ", ".join(names) or "nothing"
    raise InputError(
        f"the bundle contains no {what} ({' or '.join(patterns)}), only {have}",
        hint=f"copy the {what} into {bundle.root}, or name the file in the playbook, under `run: "
        f"options:`: `{key}: FILE`",
    )


def named(bundle: Bundle, name: str | None, patterns: tuple[str, ...], what: str, key: str) -> str:
    """Return `name` if it is in the bundle, else the only file that matches. Raises InputError."""
    if name is None:
        return only(bundle, patterns, what, key)
    if name not in {item.name for item in bundle.files}:
        raise InputError(
            f"`{key}` under `run: options:` is {name}, but the bundle has no file with this name",
            hint="correct the name in the playbook; "
            f"fleet bundle inspect {shlex.quote(str(bundle.root))} (lists the files of the bundle)",
        )
    return name


def ending(start: Start, ended: Ended) -> list[str]:
    """Return a sentence for a timeout or an exit status other than 0, else []."""
    if ended.status in TIMED_OUT:
        return [f"cut: the program did not end within {start.timeout:g} s"]
    return [f"failed: exit status {ended.status}"] if ended.status else []
