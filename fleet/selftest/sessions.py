"""Rungs of the runtime: its files, the library, the device, contexts, and what must be refused."""

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
    """What a deploy of a dialog would send is in the runtime, and is brought."""
    built, manifest, root = bench.genie
    target = built.target_for(bench.session.host, bench.facts)
    chosen = built.parts(target, bench.facts.soc.hexagon_arch).selection
    lacking = [*chosen.missing, *filter(None, [chosen.arch_problem])]
    seen = "; ".join(lacking) or f"{len(manifest.files)} files for {target}"
    return RungVerdict(not lacking, "no file is missing", seen, "\n".join([root, *manifest.blobs]))


@judge("validator")
def validator(bench: Bench) -> RungVerdict:
    """Qualcomm's own test of the platform, where the SDK brings it."""
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
    """The library loads, with all that it needs."""
    said = bench.open_session()
    begun = said.code("backendCreate")
    seen = said.load or f"backendCreate: {begun}"
    return RungVerdict(begun == 0, "loads, and creates a backend", seen, said.words)


@judge("device")
def device(bench: Bench) -> RungVerdict:
    """The DSP's half begins: unsigned, its skel found by one folder of links."""
    said = bench.open_session()
    if said.failed and not _emulator(bench):
        bench.emulated(said.words)  # a lab board with real libraries has no DSP all the same
    return RungVerdict(said.code(_DEVICE) == 0, "created", said.failed or "created", said.words)


def _emulator(bench: Bench) -> bool:
    """Whether the runtime brings its own Hexagon."""
    target = bench.genie[0].target_for(bench.session.host, bench.facts)
    return target_facts(target).kind == "emulator"


@judge("refused-chip")
def refused_chip(bench: Bench) -> RungVerdict:
    """Only on a chip that the table says is refused."""
    built, *_ = bench.genie
    target = target_facts(built.target_for(bench.session.host, bench.facts))
    soc = bench.facts.soc
    if soc.soc_model not in target.refused_soc_models:
        raise Undecided("other-chip", soc.chip or "unknown")
    bench.emulated()
    said = bench.open_session()
    return RungVerdict(said.code(_DEVICE) != 0, "refused", said.failed or "created", said.words)


@judge("context")
def context(bench: Bench) -> RungVerdict:
    """Our own, of the arch of the device."""
    _new_enough(bench)
    arch = bench.facts.soc.hexagon_arch
    said = bench.open_session(tiny_context(arch))
    seen = f"{arch}: {said.failed or 'loaded'}"
    return RungVerdict(said.code(_CONTEXT) == 0, f"{arch} loads", seen, said.words)


@judge("contexts")
def contexts(bench: Bench) -> RungVerdict:
    """Those of all other archs; the emulator takes them all."""
    others = [arch for arch in _ARCHS if arch != bench.facts.soc.hexagon_arch]
    said = {arch: bench.open_session(tiny_context(arch)) for arch in others}
    words = "\n".join(f"# {arch}\n{each.words}" for arch, each in said.items())
    if bench.facts.emulated:
        raise Undecided("emulated", words=words)
    loaded = [arch for arch, each in said.items() if not each.failed]
    seen = f"loaded: {', '.join(loaded)}" if loaded else "all refused"
    return RungVerdict(
        not loaded, "context binaries of other Hexagon archs are refused", seen, words
    )


def _new_enough(bench: Bench) -> None:
    if bench.version < TINY_QAIRT:
        raise Undecided("old-runtime", ".".join(map(str, TINY_QAIRT)))


@judge("kill")
def kill(bench: Bench) -> RungVerdict:
    """A session that is held open is killed as a run past its time is; then another one."""
    argv, program, env, _ = bench.session_parts("", _HELD)
    start = Start(argv, "", timeout=_KILLED_AFTER, prompt=program, feeds_prompt=True, env=env)
    ended = bench.start(bench.genie[1], start, 2)
    said = bench.open_session()
    words = ended.stdout.decode("utf-8", "replace") + said.words
    second = f"it failed in {said.failed}" if said.failed else "it opened the device"
    killed = f"the first program ended with status {ended.status}; after it, a second one: {second}"
    holds = ended.status == 124 and said.code(_DEVICE) == 0
    return RungVerdict(
        holds, "after a program is killed, the next program can open the NPU device", killed, words
    )


@judge("daemon")
def daemon(bench: Bench) -> RungVerdict:
    """Where it does not run and a device was created, none is needed. To stop it needs root."""
    if bench.facts.android is not None:
        raise Undecided("android")
    bench.emulated()
    active = any("ActiveState=active" in row for row in bench.seen.lines.get("unit", ()))
    if active:
        raise Undecided("needs-root")
    return RungVerdict(
        True, "a device without it", "the program does not run, but a device was created"
    )


@judge("separator")
def separator(bench: Bench) -> RungVerdict:
    """With a colon the whole text is one folder, which is not there."""
    bench.emulated()
    dsp = f"{bench.genie[2]}/dsp"
    return _refused(bench.open_session(ADSP_LIBRARY_PATH=f"{dsp}:/usr/lib/dsp"))


@judge("no-adsp-path")
def no_adsp_path(bench: Bench) -> RungVerdict:
    """Without it only the folders of the system are searched."""
    bench.emulated()
    return _refused(bench.open_session(ADSP_LIBRARY_PATH=""))


@judge("other-skel")
def other_skel(bench: Bench) -> RungVerdict:
    """The skel with another build id in it, as long as the true one."""
    bench.emulated()
    base = bench.genie[1]
    skel = next(item for item in base.files if item.name.endswith("Skel.so"))
    other = bench.work / skel.name.rpartition("/")[2]
    other.write_bytes(re.sub(rb"v2\.\d\d\.(?=\d+\.\d{12})", b"v2.40.", skel.source.read_bytes()))
    manifest = Manifest("selftest-skel", (file_ref(other, skel.name),))
    root = bench.bring(manifest)
    return _refused(bench.open_session(ADSP_LIBRARY_PATH=f"{root}/dsp"))


def _refused(said: SessionWords) -> RungVerdict:
    """It must fail, and the doctor must have a name for its words."""
    known = knowledge()
    found = rank(witnesses(lines_of(said.words), known), known=known.causes)
    cause = found[0].cause.id if found else "no cause that the doctor knows"
    seen = f"{said.failed}; {cause}" if said.failed else "a device was created"
    return RungVerdict(bool(said.failed and found), "refused, in known words", seen, said.words)
