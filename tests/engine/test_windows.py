"""The main job on a PC with Windows that is none: a real sshd in front of the stand-in.

What runs for real: ssh, the frames, the program that does the work there, hard links, leases. What
does not: PowerShell, Windows, QAIRT, an NPU. The facts are written from documentation.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from fleet.config.playbook import load_playbook
from fleet.engine.deploy import releases
from fleet.engine.deploy.operation import Operation, Resources
from fleet.engine.deploy.push import Push
from fleet.engine.options import DeployOptions
from fleet.engine.status import status
from fleet.engine.transfer.context import TransferOptions
from fleet.model.errors import InputError
from fleet.model.events import Event
from fleet.model.files import FileRef, file_ref
from fleet.model.plan import DevicePlan
from fleet.profiles.runs import RunStore
from fleet.runtimes.packages import Packages
from fleet.runtimes.scan import HEADER_BYTES, identify
from fleet.runtimes.store import RuntimeStore
from tests import needs
from tests.chaos import Chaos
from tests.runtimes.fakes import BUILD, dll, skel
from tests.support_runtime import NEW, cached_runtime, cached_store
from tests.transport.windows.pc import FACTS, HERE, Pc, a_pc

ROOT = Path(__file__).parents[2]
Make = Callable[[Path], Path]
WIN = "aarch64-windows-msvc"
CONTEXT = ROOT / "tests" / "bundles" / "data" / "tiny_llm_v73_soc77_qairt2.51.0.bin"


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SDK for Windows without a byte of Qualcomm's."""
    root = tmp_path_factory.mktemp("sdk")
    version = BUILD.rsplit(".", 1)[0]
    files = {
        f"lib/{WIN}/{name}.dll": dll(build=BUILD)
        for name in ("QnnHtp", "QnnHtpV73Stub", "QnnSystem", "QnnHtpNetRunExtensions", "Genie")
    }
    files |= {
        "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so": skel(0x73),
        "lib/hexagon-v73/unsigned/libqnnhtpv73.cat": b"signature",
        "sdk.yaml": f"version: {version}\n".encode(),
    }
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    tool = root / "bin" / WIN / "genie-t2t-run.exe"
    tool.parent.mkdir(parents=True)
    source = HERE / "genie-t2t-run.c"
    subprocess.run([needs.compiler(), "-O1", "-o", str(tool), str(source)], check=True, timeout=60)
    return root


@pytest.fixture
def store(tmp_path: Path, sdk: Path) -> RuntimeStore:
    found = RuntimeStore(tmp_path / "runtimes")
    found.add(sdk, targets=(WIN,))
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pc]:
    with a_pc(tmp_path_factory.mktemp("pc")) as pc:
        yield pc


class Bench:
    def __init__(self, server: Pc, playbook: Path, store: RuntimeStore, tmp_path: Path) -> None:
        self.base = tmp_path / "base"
        self.host = server.host(base_dir=str(self.base))
        self.server, self.store = server, store
        self.playbook = load_playbook(playbook)
        self.runs = RunStore(tmp_path / "runs")
        self.events: list[Event] = []

    def operation(self, **changes: object) -> Operation:
        options = DeployOptions(transfer=TransferOptions(compress="never"), **changes)  # type: ignore[arg-type]
        return Operation(
            self.playbook, [self.host], self.events.append,
            options=options, resources=Resources(self.store, self.runs),
)  # fmt: skip

    def current(self) -> str:
        return (self.base / "current" / self.playbook.name).read_text().strip()

    @property
    def release(self) -> Path:
        return self.base / "releases" / self.playbook.name / self.current()


def genie_bundle(root: Path) -> Path:
    root.mkdir()
    for one in (ROOT / "assets" / "tiny-genie").iterdir():
        if one.name != "SHA256SUMS":
            (root / one.name).write_bytes(one.read_bytes())
    return root


@pytest.fixture
def bench(server: Pc, store: RuntimeStore, tmp_path: Path) -> Bench:
    genie_bundle(tmp_path / "bundle")
    playbook = tmp_path / "genie.yaml"
    playbook.write_text(
        "name: chat\nbundle: bundle\nfastrpc: auto\n"
        "run: {runner: genie, prompt: hello, max_tokens: 64, warmups: 1, repeats: 1}\n"
    )
    return Bench(server, playbook, store, tmp_path)


def test_deploy_run_and_deploy_again(bench: Bench) -> None:
    (done,) = bench.operation().deploy()
    assert done.error is None, done.error
    assert done.outcome == "changed"
    assert bench.current() == done.plan.manifest.id  # type: ignore[union-attr]
    for record in done.records:
        assert record.problems == ()
        assert (record.text, record.emulated) == ("said hello", True)
        assert record.metrics.generated_tokens is not None
    assert len(done.records) == 2
    here = {one.name for one in bench.release.iterdir()}
    together = {"genie-t2t-run.exe", "QnnHtp.dll", "libQnnHtpV73Skel.so", "libqnnhtpv73.cat"}
    assert together < here, "skel and catalog lie beside program and stub"
    assert "genie_config.json" in here
    assert not list((bench.base / "runs").iterdir())
    assert (
        "$env:PATH = '"
        in (
            bench.base / "meta" / bench.release.parent.name / bench.release.name / "env.ps1"
        ).read_text()
    )
    (again,) = bench.operation().deploy()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0), again.error
    assert again.round_trips <= 3


def test_files_of_any_kind_are_pushed_once(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "sub folder").mkdir(parents=True)
    (source / "sub folder" / "é $x.bin").write_bytes(bytes(range(256)) * 100)
    push = [Push("data", [source], [bench.host], bench.events.append) for _ in range(2)]
    (done,) = push[0].push()
    assert done.outcome == "changed", done.error
    (again,) = push[1].push()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0), again.error
    pointer = (bench.base / "current" / "data").read_text().strip()
    there = bench.base / "releases" / "data" / pointer / "sub folder" / "é $x.bin"
    assert there.read_bytes() == bytes(range(256)) * 100


@pytest.mark.parametrize("name", ["Manifest.JSON", "ENV.ps1", ".Installed", ".SEAL", "a/.Seal"])
def test_a_file_named_like_one_of_fleets_own_is_brought(
    bench: Bench, tmp_path: Path, name: str
) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / name).write_text("mine")
    (done,) = Push("data", [tmp_path / "data"], [bench.host], bench.events.append).push()
    assert done.outcome == "changed", done.error
    pointer = (bench.base / "current" / "data").read_text().strip()
    assert (bench.base / "releases" / "data" / pointer / name).read_text() == "mine"


def test_a_name_that_windows_does_not_keep_is_refused_before_a_byte(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "bundle" / "a:b").write_text("mine")
    (done,) = Push("data", [tmp_path / "bundle"], [bench.host], bench.events.append).push()
    assert isinstance(done.error, InputError)
    assert done.error.message == (
        "Windows does not allow the file name 'a:b': the name contains ':'"
    )
    assert done.bytes_sent == 0
    assert not bench.base.exists()


def test_the_plan_says_what_it_does_not_do(bench: Bench) -> None:
    (done,) = bench.operation().plan()
    assert done.plan is not None
    assert any("fleet does not change the system" in note for note in done.plan.notes)
    assert any("emulated" in note for note in done.plan.notes)
    assert done.round_trips == 2
    assert not bench.base.exists()


@pytest.mark.slow
def test_rollback_and_status(bench: Bench) -> None:
    bench.operation(run="never").deploy()
    first = bench.current()
    extra = bench.playbook.bundle / "note.json"
    extra.write_text("{}")
    config = bench.playbook.bundle / "genie_config.json"
    config.write_text(config.read_text() + "\n")
    (done,) = bench.operation(run="never").deploy()
    assert done.outcome == "changed", done.error
    assert bench.current() != first
    (back,) = releases.rollback([bench.host], "chat", bench.events.append)
    assert back.outcome == "changed", back.error
    assert bench.current() == first
    (seen,) = status([bench.host], bench.events.append, parallel=1)
    (one,) = seen.answer.deployed
    assert (one.id, one.state, one.broken) == (first, "installed", 0)


@pytest.mark.slow
def test_a_release_without_its_catalog_is_not_switched_to(bench: Bench) -> None:
    """The file is taken away on the device: the health probe fails, `current` stays."""
    bench.operation(run="never").deploy()
    first = bench.current()
    config = bench.playbook.bundle / "genie_config.json"
    config.write_text(config.read_text() + "\n")
    (planned,) = bench.operation().plan()
    assert isinstance(planned.plan, DevicePlan)
    staged = bench.base / "releases" / "chat" / planned.plan.manifest.id
    (bench.release / "libqnnhtpv73.cat").unlink()
    (back,) = releases.rollback([bench.host], "chat", bench.events.append, to=first)
    assert back.outcome == "unchanged"
    (done,) = bench.operation(run="never").deploy()
    assert done.outcome == "changed", "the new release has its own link"
    (refused,) = releases.rollback([bench.host], "chat", bench.events.append)
    assert refused.error is not None
    assert "transportStatus: 9" in refused.error.message
    assert bench.current() == staged.name


@pytest.mark.slow
def test_a_cut_link_is_resumed_at_the_byte(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.engine.transfer.upload.WAIT_SECONDS", 0.01)
    (bench.playbook.bundle / "large.bin").write_bytes(bytes(range(256)) * 20_000)
    (planned,) = bench.operation().plan()
    total = planned.plan.bytes  # type: ignore[union-attr]
    with Chaos(bench.server.port, [400_000, 400_000]) as cable:
        bench.host = cable.through(bench.host, bench.base.parent)
        (done,) = bench.operation(run="never").deploy()
        assert cable.cuts >= 1
    assert done.error is None, done.error
    assert done.outcome == "changed"
    assert done.bytes_sent <= total + 3 * 5_000_000


@pytest.mark.slow
@pytest.mark.qairt
def test_the_real_packages_are_of_one_kind(server: Pc, tmp_path: Path, t5: Make) -> None:
    """The win_arm64 wheels from the registry, and QAIRT 2.51.0 out of one of them."""
    cached_runtime(NEW, WIN)
    bench = Bench(server, t5(tmp_path), cached_store(), tmp_path)
    (done,) = bench.operation().plan()
    assert done.error is None, done.error
    files = {item.name: item for item in done.plan.manifest.files}  # type: ignore[union-attr]
    folder = "site/onnxruntime_qnn"
    wanted = ["onnxruntime_providers_qnn.dll", "QnnHtp.dll", "QnnSystem.dll", "QnnHtpPrepare.dll"]
    wanted += ["QnnHtpV73Stub.dll", "libQnnHtpV73Skel.so", "libqnnhtpv73.cat"]
    for name in wanted:
        assert f"{folder}/{name}" in files
    assert "site/numpy/__init__.py" in files
    others = {one for one in files if "V81" in one or "V68" in one or one.endswith("v81.cat")}
    assert not others, "only what this chip needs"
    machines = {
        identify(item.source.read_bytes()[:HEADER_BYTES], name)[0]
        for name, item in files.items()
        if name.endswith((".dll", ".pyd"))
    }
    assert machines == {"win-arm64"}


@pytest.mark.parametrize(
    "text",
    [
        "bundle: {path: bundle, kind: qnn}\n",
        "bundle: {path: bundle, kind: files}\nrun: {runner: exec, program: x}\n",
    ],
)
def test_what_is_not_done_is_refused_in_words(
    server: Pc, store: RuntimeStore, tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "m.bin").write_bytes(CONTEXT.read_bytes())
    (tmp_path / "x").write_text("#!/bin/sh\n")
    playbook = tmp_path / "p.yaml"
    playbook.write_text(f"name: other\nruntime: '2.51.0'\n{text}")
    bench = Bench(server, playbook, store, tmp_path)
    (done,) = bench.operation().plan()
    assert done.error is not None
    assert "on Windows" in done.error.message
    assert "docs/windows.md" in done.error.hint
    assert not bench.base.exists()


def test_a_wrong_python_is_refused_before_a_byte(
    store: RuntimeStore, tmp_path: Path, packages: None, t5: Make
) -> None:
    facts = tmp_path / "amd64.txt"
    facts.write_text(FACTS.read_text().replace("win-arm64", "win-amd64"))
    with a_pc(tmp_path / "pc", facts=facts) as pc:
        bench = Bench(pc, t5(tmp_path), store, tmp_path)
        (done,) = bench.operation().deploy()
    assert done.error is not None
    assert "windows-python" in done.error.message
    assert "win_arm64" in done.error.message
    assert "guides that name AMD64" in done.error.message + done.error.hint
    assert not bench.base.exists()


def model(path: Path, op: str = "Relu", **attributes: Any) -> None:
    """The smallest ONNX model; an EPContext node where `op` says so."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in ("x", "y")]
    domain = "com.microsoft" if op == "EPContext" else ""
    node = helper.make_node(op, ["x"], ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), str(path))


def copied(name: str, folder: Path) -> Path:
    playbook = folder / "playbooks" / name
    playbook.parent.mkdir(exist_ok=True)
    playbook.write_text((ROOT / "playbooks" / name).read_text())
    return playbook


@pytest.fixture
def t5() -> Make:
    def make(folder: Path) -> Path:
        root = folder / "bundles" / "t5-nlu"
        parts = ("encoder_model", "decoder_model", "decoder_with_past_model")
        optimised = [f"optimised/{name}" for name in parts]
        for name in ("t5_nlu_encoder", "t5_nlu_decoder", *optimised):
            model(root / f"{name}.onnx")
        for name in ("input_ids", "attention_mask"):
            (root / f"{name}.npy").write_bytes(b"numbers")
        (root / "tokenizer").mkdir()
        (root / "tokenizer" / "spiece.model").write_bytes(b"model")
        return copied("t5-snapdragon-x.yaml", folder)

    return make


@pytest.fixture
def llama() -> Make:
    def make(folder: Path) -> Path:
        root = folder / "bundles" / "llama32-3b-genai"
        for name in ("quantizer", "dequantizer", "position-processor"):
            model(root / f"{name}.onnx")
        for number in (1, 2):
            name = f"transformer_{number}"
            (root / f"{name}.bin").write_bytes(CONTEXT.read_bytes())
            (root / f"{name}.json").write_text("{}")
            model(
                root / f"{name}.onnx", "EPContext", embed_mode=0, main_context=1,
                ep_cache_context=f"{name}.bin", source="QNNExecutionProvider",
            )  # fmt: skip
        for name in ("genai_config", "tokenizer", "tokenizer_config", "special_tokens_map"):
            (root / f"{name}.json").write_text("{}")
        return copied("llama32-genai.yaml", folder)

    return make


@pytest.fixture(params=["t5", "llama"])
def which(request: pytest.FixtureRequest) -> Make:
    found: Make = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are fetched by another test; here it counts where they go."""

    def found(names: tuple[str, ...], python: str, target: str, **_: object) -> Packages:
        assert (python, target) == ("3.12", WIN)
        assert "onnxruntime-qnn==2.7.0" in names
        path = tmp_path / "provider.dll"
        path.write_bytes(dll())
        one: FileRef = file_ref(path, "site/onnxruntime_qnn/onnxruntime_providers_qnn.dll")
        return Packages((one,), {})

    monkeypatch.setattr("fleet.engine.deploy.resolver.packages_for", found)


def test_the_playbooks_of_the_walk_throughs_pass_the_plan(
    server: Pc, store: RuntimeStore, tmp_path: Path, packages: None, which: Make
) -> None:
    playbook = which(tmp_path)
    bench = Bench(server, playbook, store, tmp_path)
    (done,) = bench.operation().plan()
    assert done.error is None, (done.error.message, done.error.hint)
    plan = done.plan
    assert plan is not None
    assert (done.outcome, plan.target) == ("planned", WIN)
    assert not [one for one in plan.findings if one.refuses]
    names = {item.name for item in plan.manifest.files}
    folder = "site/onnxruntime_qnn"
    for name in ("QnnHtp.dll", "QnnHtpV73Stub.dll", "libQnnHtpV73Skel.so", "libqnnhtpv73.cat"):
        assert f"{folder}/{name}" in names
    assert plan.manifest.env["FLEET_PATH"] == "{release}/" + folder
    config = json.loads(plan.manifest.origin["health"]["config"])
    if "provider" in config:  # of genai it stands in genai_config.json
        assert config["provider"]["backend_path"] == "QnnHtp.dll"
    assert ("provider" in config) is ("decoder_with_past" in config)
    assert not bench.base.exists()
