"""A playbook: the desired state of the devices, and the runs on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.model.gates import DEFAULT_SAMPLE_SECONDS, CoolSpec, UntilSpec
from fleet.model.op_package import OpPackageSpec
from fleet.model.rollout import RolloutSpec
from fleet.model.serve import ProgramArchive, ServeSpec
from fleet.model.suite import SuiteUse, TensorUse
from fleet.model.system import SystemSpec

DEFAULT_MAX_TOKENS = 128  # a query without a limit writes no profile when the context is full
DEFAULT_RUN_SECONDS = 300.0
DEFAULT_HEALTH_SECONDS = 120.0  # an 8B bundle opens in 4 s on an IQ-9075; slow flash needs longer
DEFAULT_PARALLEL = 16


@dataclass(frozen=True)
class RuntimeSpec:
    """The choice of a QAIRT runtime. `version` None: the one that the bundle was compiled with.

    `target` None: chosen by the device. `wheel` allows fetching `onnxruntime-qnn` if the store has
    no runtime of that version. `none`: the release contains no QAIRT.
    """

    version: str | None = None
    target: str | None = None
    wheel: bool = True
    none: bool = False


@dataclass(frozen=True)
class RunSpec:
    """A run. `prompt` is text with real newlines.

    `repeats` counted runs follow `warmups`; up to `settle` more warm-ups run while the values still
    drift. `unsaid` lists which of these the playbook leaves to the command. `timeout` is in seconds
    for each run. `max_tokens` is always set. With `token_limit_counts`, a run that reached the
    limit counts and gets the mark `cut`; otherwise it does not count.

    `program` and `libraries` are host files for runners that no SDK has, `options` are the runner's
    own. `archive` contains `program` if it is not a file of the user. `cool` waits before runs,
    `until` repeats beyond `repeats`, `sustained` repeats without pause for this number of seconds.
    `sample` is the interval between two samples of the device in seconds, None for no samples.
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
    """A deployment with a name. `bundle` is an absolute host path, `bundle_kind` its kind.

    `bundle_config` is the chosen configuration of the bundle. `warnings` are remarks on the file
    with their places, for people. `rollout` None: all devices at once. `serve` None: the model is
    not a service. `suite` and `verify` None: answers and outputs are not checked.
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
