"""A playbook: what shall be true on the devices, and what to run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.model.gates import DEFAULT_SAMPLE_SECONDS, CoolSpec, UntilSpec
from fleet.model.home import fleet_home
from fleet.model.op_package import OpPackageSpec
from fleet.model.rollout import RolloutSpec
from fleet.model.serve import ServeSpec
from fleet.model.suite import SuiteUse, TensorUse
from fleet.model.system import SystemSpec

DEFAULT_MAX_TOKENS = 128  # a query without a limit writes no profile when the context is full
DEFAULT_RUN_SECONDS = 300.0
DEFAULT_HEALTH_SECONDS = 120.0  # an 8B bundle opens in 4 s on an IQ-9075; slow flash takes more
DEFAULT_PARALLEL = 16


@dataclass(frozen=True)
class RuntimeSpec:
    """Which QAIRT runtime. `version` None: the one that the bundle was compiled with.

    `target` None: chosen by the device. `wheel` allows fetching `onnxruntime-qnn` when no
    runtime of that version is in the store. `none`: no QAIRT goes along.
    """

    version: str | None = None
    target: str | None = None
    wheel: bool = True
    none: bool = False


@dataclass(frozen=True)
class ProgramArchive:
    """An archive that has the program of a run: `source` is its URL, or its path here."""

    source: str
    sha256: str

    @property
    def folder(self) -> Path:
        """Return the folder of this workstation where the archive is unpacked."""
        return fleet_home() / "programs" / self.sha256


@dataclass(frozen=True)
class RunSpec:
    """What to run. `prompt` is text with real newlines.

    `repeats` counted runs after `warmups`, of which `settle` more come while the values still go
    one way; `unsaid`: what of that the playbook leaves to the command. `timeout` seconds for each.
    `max_tokens` is always set. `token_limit_counts`: a run that reached the limit counts, with the
    mark `cut`; False: it does not count.
    `program` and `libraries` are host files for runners that no SDK has, `options` the runner's
    own. `archive`: what `program` is unpacked from, if it is not a file of the user's.
    `cool` waits before runs, `until` repeats beyond `repeats`, `sustained` repeats without pause
    for so many seconds. `sample`: seconds between two looks at the device during a run; None for
    no looks at all.
    """

    runner: str = "genie"
    prompt: str = ""
    max_tokens: int = DEFAULT_MAX_TOKENS
    repeats: int = 1
    warmups: int = 0
    settle: int = 0
    unsaid: tuple[str, ...] = field(default=("repeats", "warmups"), compare=False)
    timeout: float = DEFAULT_RUN_SECONDS
    token_limit_counts: bool = True
    program: Path | None = None
    archive: ProgramArchive | None = None
    libraries: tuple[Path, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    cool: CoolSpec | None = None
    until: UntilSpec | None = None
    sustained: float | None = None
    sample: float | None = DEFAULT_SAMPLE_SECONDS


@dataclass(frozen=True)
class Playbook:
    """One deployment by name. `bundle` is an absolute host path, `bundle_kind` what it is,
    `bundle_config` the configuration of it that is chosen.

    `warnings` are remarks on the file, each with its place, for a person to read. `rollout`
    None: all devices at once. `serve` None: the model is no service. `suite` and `verify`
    None: nothing checks its answers and outputs.
    """

    path: Path
    name: str
    bundle: Path
    runtime: RuntimeSpec = RuntimeSpec()
    run: RunSpec | None = None
    health_timeout: float = DEFAULT_HEALTH_SECONDS
    parallel: int = DEFAULT_PARALLEL
    keep: int = 3
    tune: tuple[str, ...] = ()
    system: SystemSpec = field(default_factory=SystemSpec)
    warnings: tuple[str, ...] = ()
    bundle_kind: str = "genie"
    bundle_config: str | None = None
    op_packages: tuple[OpPackageSpec, ...] = ()
    rollout: RolloutSpec | None = None
    serve: ServeSpec | None = None
    suite: SuiteUse | None = None
    verify: TensorUse | None = None
