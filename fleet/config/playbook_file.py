"""The shape of a playbook file."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from fleet.config.fields import Duration, FilePath, Matches, Strict, no_template, wrong
from fleet.config.gates_file import Cool, Sampling, Until, short_or_mapping
from fleet.config.op_packages import OpPackageBody
from fleet.config.rollout_file import RolloutBody
from fleet.config.serve_file import ServeBody
from fleet.config.system_file import Fastrpc, SystemBody
from fleet.config.tune import PATTERN
from fleet.config.values import TARGET
from fleet.model.gates import DEFAULT_SAMPLE_SECONDS
from fleet.model.playbook import (
    DEFAULT_HEALTH_SECONDS,
    DEFAULT_MAX_TOKENS,
    DEFAULT_PARALLEL,
    DEFAULT_RUN_SECONDS,
    Playbook,
)

VERSION = r"bundle|\d+\.\d+\.\d+(\.\d+)?"

Name = Annotated[
    str,
    Matches(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        "release name",
        "use up to 64 letters, digits and . _ -; begin with a letter or digit",
    ),
]
AutoTarget = Annotated[
    str,
    Matches(
        f"auto|{TARGET.pattern}",
        "QAIRT target",
        "write `auto`, or a name like aarch64-oe-linux-gcc11.2",
    ),
]
RunnerName = Annotated[
    str,
    Matches(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "name of a runner", "fleet config runners (lists them)"
    ),
]
PositiveInt = Annotated[int, Field(ge=1)]


def _on_off(value: object) -> object:
    """Accept `on` and `off` as words too; YAML 1.1 reads them as true and false."""
    return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value


OnOff = Annotated[
    bool,
    BeforeValidator(_on_off),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": ["on", "off"]}]}),
]


def _version(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    if not isinstance(value, str):
        raise wrong(
            "the version is not quoted, so YAML reads it as a number (2.50 becomes 2.5)",
            'write all three numbers, in quotes: "2.51.0"',
        )
    no_template(value)
    if not re.fullmatch(VERSION, value):
        raise wrong(
            f"'{value}' is not a QAIRT version",
            'write "2.51.0", a full build id like "2.45.0.260326", or `bundle`',
        )
    return value


Version = Annotated[
    str, BeforeValidator(_version), WithJsonSchema({"type": "string", "pattern": f"^({VERSION})$"})
]


class RuntimeBody(Strict):
    """Which QAIRT runtime goes to the devices."""

    version: Version = Field(
        default="bundle",
        description="`bundle` (the version that compiled the bundle) or a QAIRT version in quotes.",
    )
    target: AutoTarget = Field(
        default="auto", description="QAIRT target; `auto` takes the one that fits each device."
    )
    source: Literal["any", "store"] = Field(
        default="any",
        description="`store`: use only runtimes in the store; `any`: download a wheel if "
        "the store has "
        "no runtime that fits.",
    )


class BundleBody(Strict):
    """What is deployed."""

    path: FilePath = Field(description="Folder of the bundle, relative to the playbook.")
    kind: Literal["genie", "qnn", "mllm", "executorch", "llama.cpp", "litert", "ort", "files"] = (
        Field(
            default="genie",
            description="Kind of the bundle. With genie, fleet sends the files of its "
            "configuration; "
            "with the others, all files: qnn (context binary or DLC), mllm, executorch "
            "(.pte), llama.cpp (.gguf), litert (.tflite), ort (ONNX models, with or "
            "without context binaries), files.",
        )
    )


class ChatBody(Strict):
    """A conversation that a chat template turns into the prompt."""

    template: FilePath | None = Field(
        default=None,
        description="llama3, qwen, phi, mistral, nemotron, or a .jinja file relative to the "
        "playbook. Default: the chat template of the model in the bundle.",
    )
    system: str | None = Field(default=None, description="Text of the system message.")
    user: str = Field(description="Text of the question.")
    think: OnOff | None = Field(
        default=None,
        description="`on` or `off`, for models that can think before they answer. Default: the "
        "model's own default.",
    )


class RunBody(Strict):
    """What to run, and how often."""

    runner: RunnerName | None = Field(
        default=None,
        description="genie, qnn-net-run, mllm, executorch, llama.cpp, litert, ort, genai, "
        "exec, or a "
        "runner of another package. Default: the runner for the kind of the bundle.",
    )
    program: FilePath | None = Field(
        default=None,
        description="Program of the runner, if the SDK does not contain it; relative to the "
        "playbook.",
    )
    libraries: list[FilePath] = Field(
        default_factory=list,
        description="Libraries of the program, relative to the playbook; * and ? are allowed.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Options of the runner: docs/runners.md."
    )
    prompt: str | None = Field(default=None, description="Text of the prompt, or use prompt_file.")
    prompt_file: FilePath | None = Field(
        default=None, description="File with the prompt (UTF-8), relative to the playbook."
    )
    chat: ChatBody | None = Field(
        default=None,
        description="Question and chat template instead of prompt: {template: qwen, user: ...}.",
    )
    max_tokens: PositiveInt = Field(
        default=DEFAULT_MAX_TOKENS, description="Most tokens to generate."
    )
    repeats: PositiveInt | None = Field(
        default=None,
        description="Number of measured runs. Default: 5 in `fleet run`, 1 in a deploy.",
    )
    warmups: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Number of warm-up runs. Default: 2 to 4 in `fleet run`, 0 in a deploy.",
    )
    timeout: Duration = Field(
        default=DEFAULT_RUN_SECONDS, description="Longest time of one run: seconds, or 90s, 5m, 1h."
    )
    token_limit_counts: bool = Field(
        default=True,
        description="Count runs that stopped at max_tokens, with the mark `cut`. Default: true; "
        "`false`: such a run is not valid.",
    )
    cool: Cool | None = Field(
        default=None,
        description="Before each measured run, wait until the device is below a temperature: "
        "45C, or a mapping.",
    )
    until: Until | None = Field(
        default=None,
        description="Repeat the run until the confidence interval of the metric is narrow "
        "enough: 3%, or a mapping.",
    )
    sustained: Duration | None = Field(
        default=None, description="Repeat the run back to back for this time: 90s, 10m."
    )
    sample: Sampling = Field(
        default=DEFAULT_SAMPLE_SECONDS,
        description="How often to read temperatures and clock rates during a run, such as "
        "1s (once per second); `off`: never.",
    )


class HealthBody(Strict):
    """The probe that opens an NPU session before the release is switched."""

    timeout: Duration = Field(
        default=DEFAULT_HEALTH_SECONDS,
        description="The NPU test of a new release fails if it takes longer than this: "
        "seconds, or 90s, 5m.",
    )


TuneWord = Annotated[
    str,
    Matches(
        PATTERN,
        "word of `tune`",
        "write carrier=ssh, bandwidth=50MB/s, per-hub=2, compress=never, whole, relay or relay=no",
    ),
]


class StrategyBody(Strict):
    """How devices are worked on."""

    parallel: PositiveInt = Field(
        default=DEFAULT_PARALLEL, description="Number of devices to work on in parallel."
    )
    keep: PositiveInt = Field(
        default=Playbook.keep,
        description="Number of releases to keep on a device, the current one included.",
    )
    tune: list[TuneWord] = Field(
        default=[], description="How data is sent, as in --tune: carrier=ssh, relay, ..."
    )


class PlaybookFile(Strict):
    """A fleet playbook: what shall be true on the devices, and what to run there."""

    name: Name = Field(description="Name of the release on the devices.")
    bundle: Annotated[
        Annotated[FilePath, Tag("(short)")] | Annotated[BundleBody, Tag("(mapping)")],
        Discriminator(short_or_mapping),
    ] = Field(description="Folder of the bundle, relative to the playbook; or a mapping.")
    runtime: Annotated[
        Annotated[Version, Tag("(short)")] | Annotated[RuntimeBody, Tag("(mapping)")],
        Discriminator(short_or_mapping),
    ] = Field(default="bundle", description="QAIRT version as text, or a mapping.")
    op_packages: list[OpPackageBody] = Field(
        default=[], description="Op packages that the model needs, each a CPU and an HTP library."
    )
    run: RunBody | None = Field(default=None, description="What to run. Default: nothing.")
    fastrpc: Fastrpc = Field(
        default="off",
        description="`auto`: set up FastRPC for the deploy user; or the name of a FastRPC "
        "packaging, such as debian.",
    )
    system: SystemBody | None = Field(
        default=None,
        description="System changes: packages, groups, udev rules, systemd units and files.",
    )
    health: HealthBody | None = Field(
        default=None,
        description="Test that opens an NPU session with a new release before fleet "
        "switches to it.",
    )
    strategy: StrategyBody | None = Field(
        default=None, description="Devices at one time, releases to keep."
    )
    rollout: RolloutBody | None = Field(
        default=None, description="Canary and waves. Default: all devices in one wave."
    )
    serve: ServeBody | None = Field(
        default=None, description="Service that runs the model on the devices: fleet serve."
    )
