"""Rungs of the runtime: its files, the library, the device, contexts, and required refusals."""

from __future__ import annotations

import re

from fleet.doctor.session import TINY_QAIRT, tiny_context
from fleet.model.files import file_ref
from fleet.model.manifest import RELEASE, Manifest
from fleet.ops.environment import environment
from fleet.runners.base import Start
from fleet.runtimes.targets import target_facts
from fleet.selftest.bench import Bench, SessionWords, extra_files
from fleet.selftest.ladder import RungVerdict, Undecided, judge
from fleet.triage.knowledge import knowledge
from fleet.triage.ranking import rank
from fleet.triage.text import lines_of
from fleet.triage.witnesses import witnesses

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
