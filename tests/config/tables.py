"""The data tables of fleet/data, checked strictly; each error has its file, line and cure.

At run time `fleet.data.load` reads the tables unchecked: they are part of fleet, and a check would
slow down every start. `tests/config/test_tables.py` checks the shipped tables, and `python -m
tests.config.tables` checks a table that is being edited.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from fleet.config.problems import Problems, suggest_or_list
from fleet.config.shape import Body, read_body
from fleet.config.values import After, Pattern
from fleet.config.yamlpos import Keys, read
from fleet.model.errors import InputError


def _pattern(text: str) -> str:
    """Check that a pattern is valid in RE2, the syntax of the doctor.

    RE2 supports the syntax of Python's `re` without look-around and back references. Raises
    InputError.
    """
    try:
        everywhere = re.compile(text).search("") is not None
    except re.error as error:
        raise InputError(
            f"'{text}' is not a valid regular expression: {error}", hint=_SYNTAX
        ) from error
    if _LOOKS.search(text):
        raise InputError(f"'{text}' uses syntax that RE2 does not have", hint=_SYNTAX)
    if everywhere:
        raise InputError(f"'{text}' matches every line", hint="match at least one character")
    return text


_LOOKS = re.compile(r"(?<!\\)\((\?<?[=!]|\?P=)|(?<!\\)\\[1-9]")
_SYNTAX = "correct the expression; RE2 syntax has no look-around and no back references"
WordPattern = Annotated[str, After(_pattern)]
Name = Annotated[str, Pattern(r"[a-z][a-z0-9-]*", "name", "write it like token-limit")]
Source = Annotated[
    str,
    Pattern(
        r"https://\S+|docs/sources/\S+ \d+",
        "source",
        "write only an https:// address, or a note like `lab: ...`",
    ),
]


class _Benign(Body, frozen=True, kw_only=True):
    match: WordPattern
    source: str


class BenignLines(Body, frozen=True, kw_only=True):
    """benign.yaml: lines that look like a failure but are harmless."""

    patterns: list[_Benign]


class _Succeeded(_Benign, frozen=True, kw_only=True):
    needs: WordPattern = ""
    weak: bool = False  # the line does not cancel an earlier error


class Success(Body, frozen=True, kw_only=True):
    """success.yaml: lines with which a program reports success, and lines that cast doubt on it."""

    patterns: list[_Succeeded]
    lasting: list[str]
    doubts: list[WordPattern]
    worries: list[WordPattern]
    failure_words: list[WordPattern]


class ContextWords(Body, frozen=True, kw_only=True):
    """context_words.yaml: words that show the topic of a log."""

    npu: list[WordPattern]
    chip: list[WordPattern]
    transport: list[WordPattern]
    shell: list[WordPattern]
    phone: list[WordPattern]
    link: list[WordPattern]
    device: list[WordPattern]
    runtime: list[WordPattern]
    loader: list[WordPattern]
    build: list[WordPattern]
    workstation: list[WordPattern]
    foreign: list[WordPattern]
    board: list[WordPattern]
    document: list[WordPattern]


class _Step(Body, frozen=True, kw_only=True):
    id: str
    when: str
    text: str
    command: str = ""


class NextSteps(Body, frozen=True, kw_only=True):
    """next_steps.yaml: the next steps if the doctor recognises nothing."""

    steps: list[_Step]


class _Sentence(Body, frozen=True, kw_only=True):
    match: str
    says: str


class _Kind(Body, frozen=True, kw_only=True):
    id: str
    match: WordPattern


class _Unsure(Body, frozen=True, kw_only=True):
    subjects: list[str]
    symptoms: list[str]


class Families(Body, frozen=True, kw_only=True):
    """families.yaml: the subject of a line, and its symptom."""

    unsure: _Unsure
    subjects: list[_Kind]
    symptoms: list[_Kind]
    table: dict[str, dict[str, str]]


class _Leaf(Body, frozen=True, kw_only=True):
    cause: str
    holds: str = field(name="if")
    shows: WordPattern = ""


class _StageQuestion(Body, frozen=True, kw_only=True):
    who: list[str] = field(default_factory=list)
    ask: str
    command: str
    leaves: list[_Leaf]


class _Stage(Body, frozen=True, kw_only=True):
    id: Name
    words: WordPattern
    layers: list[str] = field(default_factory=list)
    apart: list[str]
    questions: list[_StageQuestion]


class Stages(Body, frozen=True, kw_only=True):
    """stages.yaml: the stages of a deployment, and the question that splits the causes of each."""

    stages: list[_Stage]


class Sentences(Body, frozen=True, kw_only=True):
    """sentences.yaml: the meaning of common lines that are not a cause on their own."""

    sentences: list[_Sentence]


class PlatformWords(Body, frozen=True, kw_only=True):
    """platform_words.yaml: words that show the platform of a log."""

    android: list[WordPattern]
    windows: list[WordPattern]
    linux: list[WordPattern]


class _Instead(Body, frozen=True, kw_only=True):
    title: str
    changes: str


class _Actor(Body, frozen=True, kw_only=True):
    words: list[WordPattern]
    no_cure: WordPattern
    instead: _Instead


class ActorWords(Body, frozen=True, kw_only=True):
    """actor_words.yaml: words that show who ran the program, and the cures that this actor cannot
    apply.
    """

    aihub: _Actor
    winml: _Actor
    app: _Actor
    shell: _Actor
    pc: _Actor


# The model of data/assumptions.yaml: fleet's assumptions, and the self-test that decides them.

KINDS = ("board", "phone", "lab", "lab-phone")
Allowed = dict[Literal["board", "phone", "lab", "lab-phone"], list[Name]]


class _Rung(Body, frozen=True, kw_only=True):
    id: Name
    asks: Annotated[str, Pattern(r".{10,60}\?", "question", "at most 60 characters and a ?")]
    checks: list[Name] = field(default_factory=list)
    strict: bool = False
    needs: list[Name] = field(default_factory=list)
    never: Name | None = None
    what: str = ""


class _Assumption(Body, frozen=True, kw_only=True):
    id: Annotated[str, Pattern(r"A[1-9][0-9]?", "id", "write it like A7")]
    statement: Annotated[str, Pattern(r".{10,100}\.", "sentence", "a sentence with its full stop")]
    symbol: Annotated[str, Pattern(r"fleet(\.\w+)+:\w+", "symbol", "fleet.module:name")]
    rung: Name
    source: Source
    undecided: Allowed


class AssumptionTable(Body, frozen=True, kw_only=True):
    """assumptions.yaml: rungs, assumptions, and the reasons for undecided ones."""

    reasons: dict[Name, str]
    rungs: list[_Rung]
    allowed: dict[str, Allowed]
    assumptions: list[_Assumption]


def unknown_names(table: AssumptionTable) -> Iterator[tuple[Keys, str, Collection[str], str]]:
    """Yield each reference to another row: its place, the name, the known names, and the expected
    kind.
    """
    rungs = [rung.id for rung in table.rungs]
    for at, rung in enumerate(table.rungs):
        for name in rung.needs:
            yield ("rungs", at, "needs"), name, rungs[:at], "rung of the self-test before this one"
        if rung.never:
            yield ("rungs", at, "never"), rung.never, table.reasons, "reason"
    for at, row in enumerate(table.assumptions):
        yield ("assumptions", at, "rung"), row.rung, rungs, "rung"
        for kind in KINDS:
            for name in row.undecided.get(kind, ("no row",)):  # type: ignore[call-overload]
                yield ("assumptions", at, "undecided"), name, table.reasons, "reason"


Arch = Annotated[str, Pattern(r"v[0-9]{2,3}", "Hexagon arch", "write it like v73")]
Version = Annotated[str, Pattern(r"[0-9]+(\.[0-9]+)+", "version", 'quote it: "2.51.0"')]
Mode = Annotated[str, Pattern(r"0[0-7]{3}", "mode", 'quote it: "0640"')]
Day = Annotated[str, Pattern(r"20\d\d-\d\d-\d\d", "day", 'quote it: "2026-10-28"')]
FileName = Annotated[str, Meta(min_length=1)]
Names = list[FileName]


Chips = Annotated[list[str], Meta(min_length=1)]


class _Pc(Body, frozen=True, kw_only=True):
    inf_code: str
    processors: list[str] = field(default_factory=list)


class _Soc(Body, frozen=True, kw_only=True):
    chip: Annotated[str, Pattern(r"[A-Z0-9]+", "chip", "write it as Qualcomm does: QCS9075")]
    marketing: str
    soc_model: Annotated[int, Meta(ge=1)] | None
    soc_model_candidates: list[int] = field(default_factory=list)
    arch: Arch | None
    htp: Literal[False] | None = None
    vtcm_mb: Annotated[int, Meta(ge=1, le=64)] | None
    kernel_soc_ids: list[Annotated[int, Meta(ge=1)]]
    compatible: list[list[str]] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    min_qairt: Version | None = None
    windows: _Pc | None = None
    sources: Annotated[list[str], Meta(min_length=1)]
    confidence: Literal["certain", "likely", "uncertain"]


class _Socs(Body, frozen=True, kw_only=True):
    schema_version: Literal[1] = field(name="schema")
    sources: dict[str, str]
    platforms: dict[str, Chips]
    aihub: dict[str, str]
    socs: Annotated[list[_Soc], Meta(min_length=1)]


class _PackagingVersion(Body, frozen=True, kw_only=True):
    since: str
    date: Day
    group: str | None
    rules: bool | None
    heap: bool | None
    node: Mode | None
    secure: Mode | None
    source: Source


class _Packaging(Body, frozen=True, kw_only=True):
    title: str
    packages: list[str]
    companions: list[str]
    marks: list[str]
    unit: str | None
    versions: Annotated[list[_PackagingVersion], Meta(min_length=1)]
    setup: str = ""
    boards: list[str] = field(default_factory=list)
    version_mark: str = ""


class _Fastrpc(Body, frozen=True, kw_only=True):
    """fastrpc.yaml: every other key is a packaging too; the code uses these two by name."""

    OTHERS = _Packaging
    upstream: _Packaging
    bsp: _Packaging
    qnn_packages: Names


class _Wheel(Body, frozen=True, kw_only=True):
    machine: str
    platforms: Names


class _Target(Body, frozen=True, kw_only=True):
    os: Literal["linux", "android", "windows"]
    machine: str
    kind: Literal["device", "emulator", "windows"]
    stub_archs: list[Arch] | None
    genie: bool
    min_glibc: Version | None = None
    refused_soc_models: list[int] = field(default_factory=list)
    needs_on_device: Names = field(default_factory=list)
    warning: str = ""
    wheel: _Wheel | None = None


class _Needed(Body, frozen=True, kw_only=True):
    lib: Names = field(default_factory=list)
    dsp: Names = field(default_factory=list)
    bin: Names = field(default_factory=list)


class _Files(Body, frozen=True, kw_only=True):
    tool: str = ""
    tool_required: bool = False
    required: _Needed
    optional: _Needed = field(default_factory=_Needed)
    sources: list[str]


class _Runner(Body, frozen=True, kw_only=True):
    tool: str
    tool_required: bool
    device: _Files
    emulator: _Files | None = None
    windows: _Files | None = None


class _More(Body, frozen=True, kw_only=True):
    required: _Needed = field(default_factory=_Needed)
    optional: _Needed = field(default_factory=_Needed)


class _Feature(Body, frozen=True, kw_only=True):
    device: _More | None = None
    emulator: _More | None = None
    windows: _More | None = None
    sources: list[str]


class _Keep(Body, frozen=True, kw_only=True):
    lib: Names
    dsp: Names
    bin: Names
    root: Names


class _RuntimeFiles(Body, frozen=True, kw_only=True):
    targets: dict[str, _Target]
    default_targets: dict[Literal["linux", "android", "windows"], dict[str, str]]
    wheel_pythons: list[Version]
    keep: _Keep
    runners: dict[str, _Runner]
    features: dict[str, _Feature]


class _Release(Body, frozen=True, kw_only=True):
    qairt: Version
    wheel: Version
    build_id: Version
    core_api: Version
    htp_backend_api: Version
    genie_api: Version
    context_blob: Version
    onnxruntime: str


class _LiteRt(Body, frozen=True, kw_only=True):
    version: Version
    qairt: Version


class _ExecuTorch(Body, frozen=True, kw_only=True):
    version: Version
    backend: str
    works: Version
    fails: list[Version]


class _Releases(Body, frozen=True, kw_only=True):
    package: str
    sdk_url: str
    executorch: _ExecuTorch
    litert: _LiteRt
    htp_backend_api_major: int
    onnx_ir_version: int
    releases: Annotated[list[_Release], Meta(min_length=1)]


Sha256 = Annotated[str, Pattern(r"[0-9a-f]{64}", "SHA-256", "write 64 hex digits, in lower case")]


class _WheelHashes(Body, frozen=True, kw_only=True):
    wheels: dict[str, Sha256]


Codes = dict[
    Annotated[str, Pattern(r"-?[0-9]+|0x[0-9a-fA-F]+", "number", "write -1, 14001 or 0x2c")],
    Annotated[list[str], Meta(min_length=1)],
]


class _ErrorCodes(Body, frozen=True, kw_only=True):
    dsp_offset: int
    qnn_ranges: list[tuple[int, int, str]]
    qnn: Codes
    genie: Codes
    fastrpc: Codes


class _QnnOperators(Body, frozen=True, kw_only=True):
    opset: int
    rank: int
    types: list[str]
    operators: list[str]
    fused: list[str]
    integer: list[str]
    refused: list[str]


TABLES: dict[str, type[Body]] = {
    "socs": _Socs,
    "fastrpc": _Fastrpc,
    "runtime_files": _RuntimeFiles,
    "qairt_releases": _Releases,
    "qnn_operators": _QnnOperators,
    "wheel_hashes": _WheelHashes,
    "benign": BenignLines,
    "success": Success,
    "platform_words": PlatformWords,
    "actor_words": ActorWords,
    "context_words": ContextWords,
    "next_steps": NextSteps,
    "sentences": Sentences,
    "stages": Stages,
    "families": Families,
    "error_codes": _ErrorCodes,
    "assumptions": AssumptionTable,
}

Fault = tuple[Keys, str, str]  # place, message, cure


def _named(path: Keys, name: str, known: Collection[str], what: str) -> Iterator[Fault]:
    if name not in known:
        yield path, f"'{name}' is not a {what}", suggest_or_list(name, list(known))


def _socs(table: _Socs) -> Iterator[Fault]:
    chips = [row.chip for row in table.socs]
    targets = _targets()
    ids: dict[int, str] = {}
    for at, row in enumerate(table.socs):
        if row.chip in chips[:at]:
            text = f"the chip '{row.chip}' has two rows in this table"
            yield ("socs", at, "chip"), text, "merge the two rows"
        for source in row.sources:
            yield from _named(("socs", at, "sources"), source, table.sources, "key of sources")
        for target in row.targets:
            yield from _named(("socs", at, "targets"), target, targets, "target")
        for number in row.kernel_soc_ids:
            if ids.setdefault(number, row.chip) != row.chip:
                text = f"the soc_id {number} already belongs to {ids[number]}"
                yield (("socs", at, "kernel_soc_ids"), text, "remove one of the two ids")
    for family, names in table.platforms.items():
        for chip in names:
            yield from _named(("platforms", family), chip, chips, "chip of this table")
    for name, chip in table.aihub.items():
        yield from _named(("aihub", name), chip, chips, "chip of this table")


def _runtime_files(table: _RuntimeFiles) -> Iterator[Fault]:
    for family, machines in table.default_targets.items():
        for machine, target in machines.items():
            yield from _named(("default_targets", family, machine), target, table.targets, "target")


def _targets() -> list[str]:
    targets = read(_shipped("runtime_files"), InputError).data.get("targets")
    return list(targets) if isinstance(targets, dict) else []


def _shipped(name: str) -> Path:
    return Path(str(files("fleet.data"))) / f"{name}.yaml"


def _assumptions(table: AssumptionTable) -> Iterator[Fault]:
    for path, name, known, what in unknown_names(table):
        yield from _named(path, name, known, what)


_CROSS: dict[str, Callable[..., Iterator[Fault]]] = {
    "socs": _socs,
    "runtime_files": _runtime_files,
    "assumptions": _assumptions,
}


def check(path: Path) -> None:
    """Check a table; its file name selects the model. Raises InputError with place and cure."""
    model = TABLES.get(path.stem)
    if model is None:
        raise InputError(f"{path} is not a table", hint="use one of: " + ", ".join(TABLES))
    document = read(path, InputError)
    problems = Problems(InputError)
    table = read_body(model, document, problems)
    for where, message, hint in _CROSS[path.stem](table) if path.stem in _CROSS else ():
        problems.add(message, document.value(where), hint)
    problems.raise_first()


def main(paths: list[str]) -> int:
    """Check the given tables, or all shipped ones, and return the exit status."""
    for path in [Path(text) for text in paths] or [_shipped(name) for name in TABLES]:
        try:
            check(path)
        except InputError as error:
            sys.stderr.write(f"{error}\n" + (f"  try: {error.hint}\n" if error.hint else ""))
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
