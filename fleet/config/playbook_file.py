"""The shape of a playbook file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from fleet.config.gates_file import Cool, Sampling, Until
from fleet.config.op_packages import OpPackageBody
from fleet.config.runners import OWN_RUNNERS
from fleet.config.shape import Body
from fleet.config.suite_file import OnOff, SuiteUseBody
from fleet.config.system_file import Fastrpc, SystemBody
from fleet.config.tune import PATTERN
from fleet.config.values import (
    TARGET,
    Before,
    Doc,
    Duration,
    FilePath,
    Pattern,
    Schema,
    no_template,
)
from fleet.config.verify_file import VerifyBody
from fleet.config.yamlpos import describe
from fleet.model.bundle import KINDS
from fleet.model.errors import InputError
from fleet.model.gates import DEFAULT_SAMPLE_SECONDS
from fleet.model.playbook import (
    DEFAULT_HEALTH_SECONDS,
    DEFAULT_MAX_TOKENS,
    DEFAULT_PARALLEL,
    DEFAULT_RUN_SECONDS,
    Playbook,
)
from fleet.model.rollout import NONE, Amount, RolloutSpec, check_rising, is_amount
from fleet.model.serve import ProgramArchive, ServeSpec

Sha256 = Annotated[
    str, Pattern(r"[0-9a-f]{64}", "SHA-256", "write 64 hexadecimal digits, in lower case")
]

# The shape of `serve:` in a playbook.


class ProgramBody(Body, frozen=True, kw_only=True):
    """A program in an archive of a release."""

    archive: Annotated[
        FilePath,
        Doc("URL of a .tar.gz or .zip, which is downloaded once; or its path, from the playbook."),
    ]
    sha256: Annotated[Sha256, Doc("SHA-256 of the archive, as its publisher gives it.")]
    file: Annotated[
        str,
        Pattern(
            r"(?!(.*/)?\.\./)[^/\x00-\x1f][^\x00-\x1f]*", "file of an archive", "like bin/NAME"
        ),
        Doc(
            "The program in the archive, like bin/geniex-bench. A single folder around everything "
            "is left out."
        ),
    ]


class ServeBody(Body, frozen=True, kw_only=True):
    """The service that runs the model on the device: `fleet serve start`."""

    backend: Annotated[
        Literal["genie", "genai", "ort", "geniex"] | None,
        Doc("Backend. Default: the one for the kind of the bundle."),
    ] = None
    program: Annotated[
        FilePath | ProgramBody | None,
        Doc("Program `geniex` of the backend geniex: a path, or {archive, sha256, file}."),
    ] = None
    port: Annotated[Annotated[int, Meta(ge=1, le=65535)], Doc("Port on the device.")] = (
        ServeSpec.port
    )
    bind: Annotated[
        Annotated[
            str,
            Pattern(
                r"[0-9A-Za-z.:_-]{1,64}",
                "address",
                "write 127.0.0.1, or 0.0.0.0 for all network interfaces",
            ),
        ],
        Doc(
            "Address on the device to listen at. Only a loopback address needs "
            "`fleet serve "
            "tunnel`."
        ),
    ] = ServeSpec.bind
    queue: Annotated[
        Annotated[int, Meta(ge=0, le=4096)],
        Doc("Requests that may wait; further ones get HTTP 429."),
    ] = ServeSpec.queue
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)],
        Doc("Generate at most this many tokens per answer."),
    ] = ServeSpec.max_tokens
    max_prompt_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=16 << 20)], Doc("Longest prompt, in bytes of UTF-8.")
    ] = ServeSpec.max_prompt_bytes
    request_timeout: Annotated[
        Duration, Doc("Longest time of a request, including its time in the queue.")
    ] = ServeSpec.request_timeout
    stop_timeout: Annotated[Duration, Doc("How long a stop waits for the running request.")] = (
        ServeSpec.stop_timeout
    )
    template: Annotated[
        FilePath | None,
        Doc(
            "Chat template: a name (plain, llama3, ...), or a .jinja file. Default: the one of "
            "the model in the bundle; without any there is no /v1/chat/completions."
        ),
    ] = None

    def spec(
        self,
        template: Mapping[str, str] | None,
        program: Path | None,
        archive: ProgramArchive | None,
    ) -> ServeSpec:
        """Return the specification for the engine, with what the caller has read."""
        read = {"template": template, "program": program, "archive": archive}
        return ServeSpec(**{**msgspec.structs.asdict(self), **read})


# The shape of `rollout:` in a playbook.

_PERCENT = r"^\s*([0-9]{1,9}|(100|[0-9]{1,2})(\.[0-9]{1,3})?\s*%)\s*$"
_AMOUNT: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _PERCENT}]
}
_SHARE: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _PERCENT}]
}
_HINT = 'write a count like 3, or a percentage like "10%"'


def _amount(value: object) -> Amount:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InputError(
            f"the value must be a count or a percentage, not {describe(value)}", hint=_HINT
        )
    return Amount.parse(value)


def _waves(value: object) -> tuple[Amount, ...]:
    if not isinstance(value, list):
        raise InputError(
            f"'waves' must be a list, not {describe(value)}", hint="write it like [5%, 50%]"
        )
    amounts = tuple(_amount(amount) for amount in value)
    check_rising(amounts)
    return amounts


def _canary(value: object) -> Amount | tuple[str, ...]:
    words = value if isinstance(value, list) else [value]
    if isinstance(value, int) and not isinstance(value, bool):
        return _amount(value)
    if isinstance(value, str) and is_amount(value):
        return _amount(value)
    if not words or not all(isinstance(word, str) and word.strip() for word in words):
        raise InputError(
            f"'canary' must be a count, a percentage or host patterns, not {describe(value)}",
            hint="write it like 1, 5%, evk-01, or [evk-01, 'iq9[0]']",
        )
    return tuple(no_template(str(word)) for word in words)


AmountField = Annotated[Amount, Before(_amount, final=True), Schema(_AMOUNT)]


class RolloutBody(Body, frozen=True, kw_only=True):
    """The order in which a deploy updates many devices."""

    canary: Annotated[
        Annotated[
            Amount | tuple[str, ...],
            Before(_canary, final=True),
            Schema(
                {
                    "anyOf": [
                        {"type": "integer", "minimum": 0},
                        {"type": "string", "minLength": 1},
                        {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "minLength": 1},
                        },
                    ]
                }
            ),
        ],
        Doc(
            "Devices before all others: a count or percentage (the first of them), or "
            "host patterns."
        ),
    ] = NONE
    waves: Annotated[
        Annotated[
            tuple[Amount, ...],
            Before(_waves, final=True),
            Schema({"type": "array", "items": _SHARE}),
        ],
        Doc(
            "Share of all devices that is done after each wave, canary included; the "
            "rest is the last wave."
        ),
    ] = ()
    max_failed: Annotated[
        AmountField, Doc("How many devices of a wave may fail; a percentage is rounded down.")
    ] = NONE
    max_unreachable: Annotated[
        AmountField,
        Doc("How many devices of a wave may be out of reach; they do not count as failed."),
    ] = NONE
    soak: Annotated[
        Duration | None,
        Doc("Wait this long after each wave, then check its devices again: 90s, 5m, 1h."),
    ] = None
    on_fail: Annotated[
        Literal["stop", "continue", "rollback"],
        Doc(
            "After too many failures in a wave: stop, continue, or roll back the "
            "devices of this run."
        ),
    ] = "stop"

    def spec(self) -> RolloutSpec:
        """Return the specification for the engine."""
        named = self.canary if isinstance(self.canary, tuple) else ()
        return RolloutSpec(
            canary=NONE if isinstance(self.canary, tuple) else self.canary,
            canary_hosts=named,
            waves=self.waves,
            max_failed=self.max_failed,
            max_unreachable=self.max_unreachable,
            soak=self.soak or 0.0,
            on_fail=self.on_fail,
        )


VERSION = r"bundle|none|\d+\.\d+\.\d+(\.\d+)?"

Name = Annotated[
    str,
    Pattern(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        "release name",
        "use up to 64 letters, digits and . _ -; begin with a letter or digit",
    ),
]
AutoTarget = Annotated[
    str,
    Pattern(
        f"auto|{TARGET.pattern}",
        "QAIRT target",
        "write `auto`, or a name like aarch64-oe-linux-gcc11.2",
    ),
]
RunnerName = Annotated[
    str,
    Pattern(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "name of a runner", "fleet config runners (lists them)"
    ),
]
PositiveInt = Annotated[int, Meta(ge=1)]


def _version(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    if not isinstance(value, str):
        raise InputError(
            "the version is not quoted, so YAML reads it as a number (2.50 becomes 2.5)",
            hint='write all three numbers, in quotes: "2.51.0"',
        )
    no_template(value)
    if not re.fullmatch(VERSION, value):
        raise InputError(
            f"'{value}' is not a QAIRT version",
            hint='write "2.51.0", a full build id like "2.45.0.260326", `bundle` or `none`',
        )
    return value


Version = Annotated[str, Before(_version), Schema({"type": "string", "pattern": f"^({VERSION})$"})]


class RuntimeBody(Body, frozen=True, kw_only=True):
    """The QAIRT runtime for the devices."""

    version: Annotated[
        Version,
        Doc(
            "`bundle` (the version that compiled the bundle), a QAIRT version in quotes, or "
            "`none`: no QAIRT goes along (runner exec)."
        ),
    ] = "bundle"
    target: Annotated[
        AutoTarget, Doc("QAIRT target; `auto` takes the one that fits each device.")
    ] = "auto"
    source: Annotated[
        Literal["any", "store"],
        Doc(
            "`store`: use only runtimes in the store; `any`: download a wheel if "
            "the store has "
            "no runtime that fits."
        ),
    ] = "any"


if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS)]
_ABOUT_KINDS = ", ".join(
    f"{kind.name} ({kind.about})" if kind.about else kind.name
    for kind in KINDS.values()
    if kind.name != "genie"
)


class BundleBody(Body, frozen=True, kw_only=True):
    """The bundle to deploy."""

    path: Annotated[FilePath, Doc("Folder of the bundle, relative to the playbook.")]
    kind: Annotated[
        KindName,
        Doc(
            "Kind of the bundle. With genie, fleet sends the files of its configuration; with the "
            f"others, all files: {_ABOUT_KINDS}."
        ),
    ] = "genie"
    config: Annotated[
        str | None,
        Doc(
            "With genie: the configuration or the genie-app script to use, a file of the bundle. "
            "Default: genie_config.json, else the only JSON file with a section `dialog`, else "
            "the genie-app script."
        ),
    ] = None


class ChatBody(Body, frozen=True, kw_only=True):
    """A conversation that a chat template turns into the prompt."""

    template: Annotated[
        FilePath | None,
        Doc(
            "llama3, qwen, phi, mistral, nemotron, or a .jinja file relative to the "
            "playbook. Default: the chat template of the model in the bundle."
        ),
    ] = None
    system: Annotated[str | None, Doc("Text of the system message.")] = None
    user: Annotated[str, Doc("Text of the question.")]
    think: Annotated[
        OnOff | None,
        Doc(
            "`on` or `off`, for models that can think before they answer. Default: the "
            "model's own default."
        ),
    ] = None


class RunBody(Body, frozen=True, kw_only=True):
    """The program to run, its input, and the number of runs."""

    runner: Annotated[
        RunnerName | None,
        Doc(
            f"{', '.join(OWN_RUNNERS)}, or a runner of another package. Default: the runner for "
            "the kind of the bundle."
        ),
    ] = None
    program: Annotated[
        FilePath | ProgramBody | None,
        Doc(
            "Program of the runner, if the SDK does not contain it: a path relative to the "
            "playbook, or {archive: URL, sha256: HEX, file: bin/NAME}."
        ),
    ] = None
    libraries: Annotated[
        list[FilePath],
        Doc("Libraries of the program, relative to the playbook; * and ? are allowed."),
    ] = field(default_factory=list)
    options: Annotated[dict[str, Any], Doc("Options of the runner: docs/runners.md.")] = field(
        default_factory=dict
    )
    prompt: Annotated[str | None, Doc("Text of the prompt, or use prompt_file.")] = None
    prompt_file: Annotated[
        FilePath | None, Doc("File with the prompt (UTF-8), relative to the playbook.")
    ] = None
    chat: Annotated[
        ChatBody | None,
        Doc("Question and chat template instead of prompt: {template: qwen, user: ...}."),
    ] = None
    max_tokens: Annotated[PositiveInt, Doc("Most tokens to generate.")] = DEFAULT_MAX_TOKENS
    repeats: Annotated[
        PositiveInt | None,
        Doc("Number of measured runs. Default: 5 in `fleet run`, 1 in a deploy."),
    ] = None
    warmups: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Doc("Number of warm-up runs. Default: 2 to 4 in `fleet run`, 0 in a deploy."),
    ] = None
    timeout: Annotated[Duration, Doc("Longest time of one run: seconds, or 90s, 5m, 1h.")] = (
        DEFAULT_RUN_SECONDS
    )
    token_limit_counts: Annotated[
        bool,
        Doc(
            "Count runs that stopped at max_tokens, with the mark `cut`. Default: true; "
            "`false`: such a run is not valid."
        ),
    ] = True
    cool: Annotated[
        Cool | None,
        Doc(
            "Before each measured run, wait until the device is below a temperature: "
            "45C, or a mapping."
        ),
    ] = None
    until: Annotated[
        Until | None,
        Doc(
            "Repeat the run until the confidence interval of the metric is narrow "
            "enough: 3%, or a mapping."
        ),
    ] = None
    sustained: Annotated[
        Duration | None, Doc("Repeat the run back to back for this time: 90s, 10m.")
    ] = None
    sample: Annotated[
        Sampling,
        Doc(
            "How often to read temperatures and clock rates during a run, such as "
            "1s (once per second); `off`: never."
        ),
    ] = DEFAULT_SAMPLE_SECONDS


class HealthBody(Body, frozen=True, kw_only=True):
    """The probe that opens an NPU session before fleet switches to a new release."""

    timeout: Annotated[
        Duration,
        Doc(
            "The NPU test of a new release fails if it takes longer than this: seconds, or 90s, 5m."
        ),
    ] = DEFAULT_HEALTH_SECONDS


TUNE_WORD = Pattern(
    PATTERN,
    "word of `tune`",
    "write carrier=ssh, bandwidth=50MB/s, per-hub=2, compress=never, whole, relay or relay=no",
)


class StrategyBody(Body, frozen=True, kw_only=True):
    """The parallelism of a deploy, the releases to keep, and the data transfer."""

    parallel: Annotated[PositiveInt, Doc("Number of devices to work on in parallel.")] = (
        DEFAULT_PARALLEL
    )
    keep: Annotated[
        PositiveInt, Doc("Number of releases to keep on a device, the current one included.")
    ] = Playbook.keep
    tune: Annotated[
        list[Annotated[str, TUNE_WORD]],
        Doc("How data is sent, as in --tune: carrier=ssh, relay, ..."),
    ] = field(default_factory=list)


class PlaybookFile(Body, frozen=True, kw_only=True):
    """A fleet playbook: the desired state of the devices, and what to run there."""

    name: Annotated[Name, Doc("Name of the release on the devices.")]
    bundle: Annotated[
        FilePath | BundleBody | None,
        Doc(
            "Folder of the bundle, relative to the playbook; or a mapping. Without it, fleet "
            "deploys the runtime alone."
        ),
    ] = None
    runtime: Annotated[Version | RuntimeBody, Doc("QAIRT version as text, or a mapping.")] = (
        "bundle"
    )
    op_packages: Annotated[
        list[OpPackageBody], Doc("Op packages that the model needs, each a CPU and an HTP library.")
    ] = field(default_factory=list)
    run: Annotated[RunBody | None, Doc("What to run. Default: nothing.")] = None
    fastrpc: Annotated[
        Fastrpc,
        Doc(
            "`auto`: set up FastRPC for the deploy user; or the name of a FastRPC "
            "packaging, such as debian."
        ),
    ] = "off"
    system: Annotated[
        SystemBody | None,
        Doc("System changes: packages, groups, udev rules, systemd units and files."),
    ] = None
    health: Annotated[
        HealthBody | None,
        Doc("Test that opens an NPU session with a new release before fleet switches to it."),
    ] = None
    strategy: Annotated[StrategyBody | None, Doc("Devices at one time, releases to keep.")] = None
    rollout: Annotated[
        RolloutBody | None, Doc("Canary and waves. Default: all devices in one wave.")
    ] = None
    serve: Annotated[
        ServeBody | None, Doc("Service that runs the model on the devices: fleet serve.")
    ] = None
    suite: Annotated[
        FilePath | SuiteUseBody | None,
        Doc("Prompts whose answers are checked: a name like instruct, a file, or a mapping."),
    ] = None
    verify: Annotated[
        VerifyBody | None, Doc("Samples for a network, whose outputs are checked.")
    ] = None
