"""The judges of the rungs: tools, a transfer, the runtime's session and refusals, whole runs."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from typing import Any

from fleet.data import shipped
from fleet.device.shell import device_script, framed
from fleet.doctor.session import TINY_QAIRT, tiny_context
from fleet.engine.deploy.switch import carry_out
from fleet.engine.run.measuring.heat import matching
from fleet.engine.states import facts_of
from fleet.model.errors import ConnectionLostError, RuntimeStoreError
from fleet.model.events import Event, Progress
from fleet.model.files import file_ref, human_bytes
from fleet.model.manifest import RELEASE, Manifest
from fleet.model.plan import Blob, SendBlobs
from fleet.model.playbook import RunSpec
from fleet.model.system import SystemSpec
from fleet.ops.environment import environment
from fleet.ops.system.access import ruled
from fleet.ops.system.packaging import installed, offered
from fleet.runners.base import Outcome, Start
from fleet.runtimes.targets import target_facts
from fleet.selftest.bench import RUN_SECONDS, Bench, SessionWords, extra_files
from fleet.selftest.ladder import RungVerdict, Undecided, judge
from fleet.triage.knowledge import knowledge
from fleet.triage.ranking import rank
from fleet.triage.text import lines_of
from fleet.triage.witnesses import witnesses

_NEEDED = {"dd", "find", "wc", "tr", "od", "grep", "readlink", "stat", "replace"}
_RESUMED = 1.6  # share of the size: with one cut and a resume, fleet sends no more than this


@judge("tools")
def tools(bench: Bench) -> RungVerdict:
    """Try each tool as the scripts use it. Tools outside `_NEEDED` have alternatives."""
    command = device_script("tools", f"{bench.folder}-tools")
    done = bench.session.ask(command, "tools", mutates=True)
    rows = {row[0]: row[1] for row in framed(done.text, "fleet-tools 1", bench.session.host.name)}
    lacking = sorted(name for name in _NEEDED if rows.get(name) != "yes")
    others = sorted(
        name for name, answer in rows.items() if answer != "yes" and name not in _NEEDED
    )
    observed = f"these do not work: {', '.join(lacking)}" if lacking else "all needed tools work"
    observed += f"; fleet uses another way for: {', '.join(others)}" if others else ""
    return RungVerdict(not lacking, "each tool works as fleet needs it", observed, done.text)


@judge("packages")
def packages(bench: Bench) -> RungVerdict:
    """Decide whether a packaging of data/fastrpc.yaml is installed or offered."""
    state = bench.system
    if state.manager is None:
        raise Undecided("no-manager")
    have = installed(state)
    row = have or offered(SystemSpec(fastrpc="auto"), state, bench.facts.soc.model)
    if row is None and bench.facts.lab:
        raise Undecided("emulated")  # the library of such a board comes without a package
    words = "\n".join(f"{name} {observed}" for name, observed in state.packages.items())
    observed = f"{row.id}, {'installed' if have else 'offered'}" if row else "neither"
    return RungVerdict(row is not None, "a packaging is installed or offered", observed, words)


@judge("rules")
def rules(bench: Bench) -> RungVerdict:
    """Compare group and mode of each node with the rules. Access lists may also open a node."""
    state = bench.system
    wrong, words = [], []
    for node in bench.facts.nodes:
        given = ruled(node.path, state.rules, setfacl="setfacl" in state.tools)
        if given is None or not node.exists:
            continue
        group, mode = given
        words.append(f"{node.path}: {node.group} {node.mode}; by the rules {group} {mode}")
        same_mode = mode is None or (node.mode is not None and int(node.mode, 8) == int(mode, 8))
        if node.open_error != "" and not (group in {None, node.group} and same_mode):
            wrong.append(node.path)
    if not words:
        raise Undecided("no-rules")
    observed = (
        f"the udev rules did not set the group and mode of {', '.join(wrong)}"
        if wrong
        else f"{len(words)} nodes as ruled"
    )
    return RungVerdict(
        not wrong,
        "each device node has the group and mode that the udev rules set",
        observed,
        "\n".join(words),
    )


class _Cut:
    """A listener that cuts the connection once, after half of the bytes."""

    def __init__(self, half: int) -> None:
        self._half, self.done = half, False

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and event.done >= self._half and not self.done:
            self.done = True
            raise ConnectionLostError("cut by the selftest")


@judge("transfer")
def transfer(bench: Bench) -> RungVerdict:
    """Send random bytes with one cut connection; the device hashes the result."""
    room = bench.facts.disk.room_bytes
    size = bench.bulk if room is None else min(bench.bulk, room // 4)
    source = bench.work / "bulk"
    with source.open("wb") as stream:
        for start in range(0, size, 1 << 20):
            stream.write(os.urandom(min(1 << 20, size - start)))
    bulk = file_ref(source, "bulk")
    session, before, listener = bench.session, bench.session.payload_bytes, bench.session.say
    session.say = cut = _Cut(size // 2)
    try:
        send = SendBlobs((Blob(bulk),))
        carry_out(session, bench.own, Manifest("selftest-bulk", (bulk,)), (send,), bench.run_id)
    finally:
        session.say = listener
        source.unlink()
    sent = session.payload_bytes - before
    how = "connection cut once" if cut.done else "connection never cut"
    observed = f"a file of {human_bytes(size)} arrived; fleet sent {human_bytes(sent)} ({how})"
    holds = cut.done and sent <= size * _RESUMED
    return RungVerdict(
        holds,
        "after a cut connection, fleet continues and does not send the first half again",
        observed,
    )


_ARCHS = ("v68", "v69", "v73", "v75", "v79", "v81")
_CONTEXT, _DEVICE = "contextCreateFromBinary", "deviceCreate"
_PASSED = re.compile(r"Unit Test on the backend \S+\s*:\s*Passed", re.IGNORECASE)
_KILLED_AFTER = 3.0
_HELD = "30"


@judge("files")
def files(bench: Bench) -> RungVerdict:
    """Send a dialog, and check that the runtime has all files that a deploy would send."""
    built, manifest, root = bench.genie
    target = built.target_for(bench.session.host, bench.facts)
    chosen = built.parts(target, bench.facts.soc.hexagon_arch).selection
    lacking = [*chosen.missing, *filter(None, [chosen.arch_problem])]
    observed = "; ".join(lacking) or f"{len(manifest.files)} files for {target}"
    return RungVerdict(
        not lacking, "no file is missing", observed, "\n".join([root, *manifest.blobs])
    )


@judge("validator")
def validator(bench: Bench) -> RungVerdict:
    """Run Qualcomm's own test of the platform, if the SDK contains it."""
    built, base, _ = bench.genie
    target = built.target_for(bench.session.host, bench.facts)
    tool = f"bin/{target}/qnn-platform-validator"
    library = f"lib/{target}/libPlatformValidatorShared.so"
    names = {tool: "bin/qnn-platform-validator", library: "lib/libPlatformValidatorShared.so"}
    own = extra_files(bench.runtime, names) if bench.runtime else ()
    if not own:
        raise Undecided("no-program", "qnn-platform-validator")
    manifest = Manifest("selftest-validator", (*base.files, *own), environment(RELEASE), base.unset)
    bench.bring(manifest)
    argv = ("{release}/bin/qnn-platform-validator", "--backend", "dsp", "--testBackend")
    ended = bench.start(manifest, Start((*argv, "--coreVersion", "--libVersion"), ""), 1)
    words = (ended.stdout + b"\n" + ended.stderr).decode("utf-8", "replace")
    passed = _PASSED.search(words) is not None and ended.status == 0
    if not passed:
        bench.emulated(words)
    return RungVerdict(passed, "passed", f"status {ended.status}", words)


@judge("backend")
def backend(bench: Bench) -> RungVerdict:
    """Load the library with everything that it needs."""
    session = bench.open_session()
    begun = session.code("backendCreate")
    observed = session.load or f"backendCreate: {begun}"
    return RungVerdict(begun == 0, "loads, and creates a backend", observed, session.words)


@judge("device")
def device(bench: Bench) -> RungVerdict:
    """Create the device: unsigned, with the skel found through one folder of links."""
    session = bench.open_session()
    if session.failed and not _emulator(bench):
        bench.emulated(session.words)  # a lab board with real libraries still has no DSP
    return RungVerdict(
        session.code(_DEVICE) == 0, "created", session.failed or "created", session.words
    )


def _emulator(bench: Bench) -> bool:
    """Return True if the runtime contains its own Hexagon emulator."""
    target = bench.genie[0].target_for(bench.session.host, bench.facts)
    return target_facts(target).kind == "emulator"


@judge("refused-chip")
def refused_chip(bench: Bench) -> RungVerdict:
    """Check that a chip is refused, if the table says so."""
    built, *_ = bench.genie
    target = target_facts(built.target_for(bench.session.host, bench.facts))
    soc = bench.facts.soc
    if soc.soc_model not in target.refused_soc_models:
        raise Undecided("other-chip", soc.chip or "unknown")
    bench.emulated()
    session = bench.open_session()
    return RungVerdict(
        session.code(_DEVICE) != 0, "refused", session.failed or "created", session.words
    )


@judge("context")
def context(bench: Bench) -> RungVerdict:
    """Load fleet's context of the device's arch."""
    _new_enough(bench)
    arch = bench.facts.soc.hexagon_arch
    session = bench.open_session(tiny_context(arch))
    observed = f"{arch}: {session.failed or 'loaded'}"
    return RungVerdict(session.code(_CONTEXT) == 0, f"{arch} loads", observed, session.words)


@judge("contexts")
def contexts(bench: Bench) -> RungVerdict:
    """Load contexts of all other archs. The emulator accepts them all."""
    others = [arch for arch in _ARCHS if arch != bench.facts.soc.hexagon_arch]
    sessions = {arch: bench.open_session(tiny_context(arch)) for arch in others}
    words = "\n".join(f"# {arch}\n{each.words}" for arch, each in sessions.items())
    if bench.facts.emulated:
        raise Undecided("emulated", words=words)
    loaded = [arch for arch, each in sessions.items() if not each.failed]
    observed = f"loaded: {', '.join(loaded)}" if loaded else "all refused"
    return RungVerdict(
        not loaded, "context binaries of other Hexagon archs are refused", observed, words
    )


def _new_enough(bench: Bench) -> None:
    if bench.version < TINY_QAIRT:
        raise Undecided("old-runtime", ".".join(map(str, TINY_QAIRT)))


@judge("kill")
def kill(bench: Bench) -> RungVerdict:
    """Kill a session that is held open, like a run after its timeout; then open another one."""
    argv, program, env, _ = bench.session_parts("", _HELD)
    start = Start(argv, "", timeout=_KILLED_AFTER, prompt=program, feeds_prompt=True, env=env)
    ended = bench.start(bench.genie[1], start, 2)
    session = bench.open_session()
    words = ended.stdout.decode("utf-8", "replace") + session.words
    second = f"it failed in {session.failed}" if session.failed else "it opened the device"
    killed = f"the first program ended with status {ended.status}; after it, a second one: {second}"
    holds = ended.status == 124 and session.code(_DEVICE) == 0
    return RungVerdict(
        holds, "after a program is killed, the next program can open the NPU device", killed, words
    )


@judge("daemon")
def daemon(bench: Bench) -> RungVerdict:
    """Check that no daemon is needed: it does not run, and a device was created.

    Stopping the daemon would need root.
    """
    if bench.facts.android is not None:
        raise Undecided("android")
    bench.emulated()
    active = any("ActiveState=active" in row for row in bench.sample.lines.get("unit", ()))
    if active:
        raise Undecided("needs-root")
    return RungVerdict(
        True, "a device without it", "the program does not run, but a device was created"
    )


@judge("separator")
def separator(bench: Bench) -> RungVerdict:
    """Join two folders with a colon, so that the path is one folder that does not exist."""
    bench.emulated()
    dsp = f"{bench.genie[2]}/dsp"
    return _refused(bench.open_session(ADSP_LIBRARY_PATH=f"{dsp}:/usr/lib/dsp"))


@judge("no-adsp-path")
def no_adsp_path(bench: Bench) -> RungVerdict:
    """Unset the path, so that only the system's folders are searched."""
    bench.emulated()
    return _refused(bench.open_session(ADSP_LIBRARY_PATH=""))


@judge("other-skel")
def other_skel(bench: Bench) -> RungVerdict:
    """Replace the skel by one of equal length with another build id."""
    bench.emulated()
    base = bench.genie[1]
    skel = next(item for item in base.files if item.name.endswith("Skel.so"))
    other = bench.work / skel.name.rpartition("/")[2]
    other.write_bytes(re.sub(rb"v2\.\d\d\.(?=\d+\.\d{12})", b"v2.40.", skel.source.read_bytes()))
    manifest = Manifest("selftest-skel", (file_ref(other, skel.name),))
    root = bench.bring(manifest)
    return _refused(bench.open_session(ADSP_LIBRARY_PATH=f"{root}/dsp"))


def _refused(session: SessionWords) -> RungVerdict:
    """Return the verdict that the session failed with an error that the doctor knows."""
    known = knowledge()
    ranked = rank(witnesses(lines_of(session.words), known), known=known.causes)
    cause = ranked[0].cause.id if ranked else "no cause that the doctor knows"
    observed = f"{session.failed}; {cause}" if session.failed else "a device was created"
    return RungVerdict(
        bool(session.failed and ranked), "refused, in known words", observed, session.words
    )


_LOAD_SECONDS = 20.0
_WARMER = 0.5  # °C
_FASTER = 0.95  # share of the default's time
_FLOATS = 8 * 64  # of the input of the tiny context, all zero
_ORT: dict[str, Any] = {
    "inputs": {"x": "x.npy"},
    "reference": {"out": "out.npy"},
    "tolerance": 0.051,  # one quantum of the output is 0.05
}


def _verdict(outcome: Outcome, words: str, expected: str, observed: str) -> RungVerdict:
    return RungVerdict(
        not outcome.problems, expected, "; ".join(outcome.problems) or observed, words
    )


@judge("genie")
def genie(bench: Bench) -> RungVerdict:
    """Ask a question to which the tiny model knows the answer."""
    bench.v73()
    built, manifest, _ = bench.genie
    outcome, words = bench.run(built, manifest, 3)
    return _verdict(outcome, words, "an answer", f"{outcome.text!r}")


@judge("token-limit")
def token_limit(bench: Bench) -> RungVerdict:
    """Ask again with a limit of two tokens. A libGenie that refuses the key runs without it."""
    built, manifest, _ = bench.genie
    run = RunSpec("genie", "What is fleet?", 2, timeout=RUN_SECONDS, token_limit_counts=True)
    outcome, words = bench.run(built, manifest, 4, run)
    refused = "no-token-limit" in outcome.marks
    observed = "refused" if refused else f"{outcome.metrics.generated_tokens} tokens"
    holds = not refused and outcome.finish == "token-limit" and not outcome.problems
    return RungVerdict(holds, "2 tokens", "; ".join(outcome.problems) or observed, words)


def _net_run(bench: Bench, number: int, **options: object) -> tuple[Outcome, str]:
    bundle = bench.work / "net-run"
    bundle.mkdir(exist_ok=True)
    arch = "v73" if bench.facts.emulated else bench.facts.soc.hexagon_arch
    (bundle / "tiny.bin").write_bytes(tiny_context(arch))
    (bundle / "x.raw").write_bytes(bytes(4 * _FLOATS))
    settings = {"inputs": [["x.raw"]], "num_inferences": 50, **options}
    run = RunSpec("qnn-net-run", timeout=RUN_SECONDS, options=settings)
    built = bench.builder(bundle, "qnn", run)
    manifest = bench.manifest(built)
    bench.bring(manifest)
    return bench.run(built, manifest, number)


@judge("net-run")
def net_run(bench: Bench) -> RungVerdict:
    """Collect a detailed profile, read by the viewer on the device or here."""
    outcome, words = _net_run(bench, 5, profiling="detailed")
    observed = f"{len(outcome.metrics.others)} numbers, {len(outcome.ops)} operations"
    verdict = _verdict(outcome, words, "numbers and operations", observed)
    return replace(verdict, holds=verdict.holds and bool(outcome.ops))


@judge("performance")
def performance(bench: Bench) -> RungVerdict:
    """Compare the speed with a configuration, with a flag, and by default."""
    bench.emulated()
    ways: dict[str, dict[str, object]] = {
        "configuration": {"perf_profile": "burst"},
        "default": {"perf_profile": "default"},
        "flag": {"perf_profile": "default", "extra": ["--perf_profile", "burst"]},
    }
    times, words = {}, ""
    for number, (name, options) in enumerate(ways.items(), 6):
        outcome, output = _net_run(bench, number, **options)
        words += f"# {name}\n{output}\n"
        micros = [v.value for k, v in outcome.metrics.others.items() if "execute" in k]
        times[name] = min(micros, default=float("nan"))
    observed = ", ".join(f"{name} {value:g} µs" for name, value in times.items())
    holds = times["configuration"] < times["default"] * _FASTER
    return RungVerdict(
        holds,
        "the model runs faster with the burst configuration than with the default configuration",
        observed,
        words,
    )


@judge("ort")
def ort(bench: Bench) -> RungVerdict:
    """Compare fleet's EPContext model with the reference evaluator of ONNX."""
    bench.v73()
    run = RunSpec("ort", timeout=RUN_SECONDS, options=_ORT)
    built = bench.builder(shipped("assets/tiny-ort"), "ort", run)
    if built.python_of(bench.facts) is None:
        raise Undecided("no-python", "python3")
    try:
        manifest = bench.manifest(built)
    except RuntimeStoreError as error:
        raise Undecided("no-packages", error.message) from error
    bench.bring(manifest)
    outcome, words = bench.run(built, manifest, 9)
    return _verdict(outcome, words, "within one quantum of the reference", "within one quantum")


@judge("zones")
def zones(bench: Bench) -> RungVerdict:
    """Run dialogs one after another, then read the zones of the compute DSP again."""
    bench.emulated()
    before = {zone.type: zone.celsius for zone in bench.facts.thermal}
    end = time.monotonic() + _LOAD_SECONDS
    while time.monotonic() < end:
        bench.run(bench.genie[0], bench.genie[1], 10)
    after = {zone.type: zone.celsius for zone in facts_of(bench.session).thermal}
    rows = {name: (before.get(name), after.get(name)) for name in matching(after)}
    warmer = [
        n for n, (a, b) in rows.items() if a is not None and b is not None and b - a >= _WARMER
    ]
    words = "\n".join(f"{name} {a} {b}" for name, (a, b) in rows.items())
    return RungVerdict(
        bool(warmer),
        "at least one thermal zone gets warmer during the runs",
        ", ".join(warmer) or "none",
        words,
    )
