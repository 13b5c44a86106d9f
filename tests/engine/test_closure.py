"""What a run opens is what is sent: 100 seeded omissions over all runners, and 200 right bundles.

The bundles are ours (assets/), under other names and with more files; runtimes and programs are
hand-made ELF files. What a run opens is written down here for each runner, apart from the check.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fleet.bundles.closure import foreign, unsent
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.model.files import file_ref
from fleet.runtimes.packages import Packages
from fleet.runtimes.store import RuntimeStore
from tests.bundles.elves import shared_object
from tests.runtimes.fakes import ARM, elf, sdk_files, write_tree

ASSETS = Path(__file__).parents[2] / "assets"
HTP = ("lib/libQnnHtp.so", "lib/libQnnSystem.so", "lib/libQnnHtpV73Stub.so",
       "dsp/libQnnHtpV73Skel.so")  # fmt: skip
NET_RUN = "lib/libQnnHtpNetRunExtensions.so"
MORE = ("libQnnHtpPrepare.so", "libQnnModelDlc.so", "libQnnGenAiTransformer.so",
        "libQnnGenAiTransformerModel.so", "libQnnGenAiTransformerCpuOpPkg.so")  # fmt: skip


@dataclass
class Made:
    """A playbook's parts, and the release names of the files that its run opens."""

    kind: str
    run: dict[str, Any]
    opens: list[str] = field(default_factory=list)
    config: str | None = None


Maker = Callable[[random.Random, Path], Made]


def put(folder: Path, name: str, data: bytes = b"x") -> str:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return f"bundle/{name}"


def some(rng: random.Random, stem: str, ending: str) -> str:
    """A file name, sometimes in a folder or with a blank."""
    place = rng.choice(["", "", "models/", "a b/"]) if ending != ".raw" else "in/"
    return f"{place}{stem}{rng.randrange(1000)}{ending}"


def genie(rng: random.Random, folder: Path) -> Made:
    tiny = ASSETS / "tiny-genie"
    data = json.loads((tiny / "genie_config.json").read_text())
    dialog, opens = data["dialog"], [*HTP, NET_RUN, "lib/libGenie.so"]
    shards = [some(rng, f"part_{number}_", ".bin") for number in range(rng.randint(1, 3))]
    part = (tiny / "tiny_genie_part_1_of_1.bin").read_bytes()
    opens += [put(folder, name, part) for name in shards]
    engine = dialog["engine"]
    engine["model"]["binary"]["ctx-bins"] = shards
    put(
        folder, engine["backend"]["extensions"], (tiny / "htp_backend_ext_config.json").read_bytes()
    )
    opens.append(put(folder, dialog["tokenizer"]["path"], b"{}"))
    if rng.random() < 0.5:
        name = some(rng, "adapter", ".bin")
        adapter = {"version": 1, "name": "a", "bin-sections": [name, ""]}
        engine["model"]["binary"]["lora"] = {"version": 1, "adapters": [adapter]}
        opens.append(put(folder, name))
    if rng.random() < 0.3:
        name = some(rng, "table", ".bin")
        dialog["embedding"] = {"version": 1, "size": 8, "type": "lut", "lut-path": name}
        opens.append(put(folder, name))
    if rng.random() < 0.3:
        other = {"role": "secondary", "backend": {"type": "QnnGenAiTransformer"},
                 "model": {"type": "library", "library": {"model-bin": "cpu.bin"}}}  # fmt: skip
        dialog["engine"] = [engine | {"role": "primary"}, other]
        opens += [put(folder, "cpu.bin"), *(f"lib/{name}" for name in MORE[2:])]
    name = rng.choice(["genie_config.json", "htp-model-config-x.json"])
    (folder / name).write_text(json.dumps(data))
    put(folder, "notes.txt")
    return Made("genie", {"runner": "genie", "prompt": "hi"}, [*opens, "bin/genie-t2t-run"])


def net_run(rng: random.Random, folder: Path) -> Made:
    ending = rng.choice([".bin", ".dlc", ".so"])
    model = (
        f"libmodel{rng.randrange(9)}.so" if ending == ".so" else f"net{rng.randrange(9)}{ending}"
    )
    source = ASSETS / "tiny-genie/tiny_genie_part_1_of_1.bin"
    opens = [*HTP, NET_RUN, "bin/qnn-net-run", put(folder, model, source.read_bytes())]
    opens += {".dlc": ["lib/libQnnModelDlc.so", "lib/libQnnHtpPrepare.so"],
              ".so": ["lib/libQnnHtpPrepare.so"]}.get(ending, [])  # fmt: skip
    rows = [[some(rng, "x", ".raw")] for _ in range(rng.randint(1, 3))]
    opens += [put(folder, row[0]) for row in rows]
    inputs: Any = [[f"x:={row[0]}"] for row in rows]
    return Made("qnn", {"runner": "qnn-net-run", "options": {"inputs": inputs}}, opens)


def mllm(rng: random.Random, folder: Path) -> Made:
    names = [f"m{rng.randrange(9)}.mllm", "tokenizer.json", "config.json"]
    names += [f"libQnnLLaMAPackage_{role}.so" for role in ("CPU", "HTP")]
    opens = [put(folder, name, b"{}").removeprefix("bundle/") for name in names]
    opens += [name.partition("/")[2] for name in (*HTP, "lib/libQnnHtpPrepare.so")]
    return Made("mllm", {"runner": "mllm", "program": "tool", "prompt": "a"}, [*opens, "tool"])


def executorch(rng: random.Random, folder: Path) -> Made:
    opens = [put(folder, f"m{rng.randrange(9)}.pte").removeprefix("bundle/"), "tool"]
    rows = [f"in/{number}.raw" for number in range(rng.randint(1, 4))]
    opens += [put(folder, row).removeprefix("bundle/") for row in rows]
    put(folder, "input_list.txt", "\n".join(rows).encode())
    opens += ["input_list.txt", *(name.partition("/")[2] for name in HTP)]
    return Made("executorch", {"runner": "executorch", "program": "tool"}, opens)


def llama(rng: random.Random, folder: Path) -> Made:
    model = some(rng, "model-Q4_0-", ".gguf")
    opens = [put(folder, model), "bin/llama-bench"]
    run = {"runner": "llama.cpp", "program": "llama-bench", "options": {"model": model}}
    return Made("llama.cpp", run, opens)


def litert(rng: random.Random, folder: Path) -> Made:
    cpu = rng.random() < 0.5
    tiny = ASSETS / "tiny-litert-npu"
    put(folder, "tiny.tflite", (tiny / "tiny.tflite").read_bytes())
    opens = ["bundle/tiny.tflite", "run/fleet_litert.py", "site/numpy/core.so", "site/numpy/t.dat"]
    options: dict[str, Any] = {"model": "tiny.tflite", "accelerator": "cpu"}
    if not cpu:
        put(folder, "npu.tflite", (tiny / "tiny_SM8750.tflite").read_bytes())
        options = {"model": "npu.tflite", "off_npu": 1, "source": "tiny.tflite"}
        opens = [*HTP, "bundle/npu.tflite", *opens[1:], "lib/libLiteRtDispatch_Qualcomm.so"]
    run = {"runner": "litert", "options": options}
    if not cpu:
        run["libraries"] = ["libLiteRtDispatch_Qualcomm.so"]
    return Made("litert", run, opens)


def ort(rng: random.Random, folder: Path) -> Made:
    shutil.copytree(ASSETS / "tiny-ort", folder, dirs_exist_ok=True)
    model = min(path.name for path in folder.glob("*.onnx"))
    name = some(rng, "x", ".npy")
    opens = [put(folder, name), f"bundle/{model}", "site/numpy/core.so", "site/numpy/t.dat"]
    opens += [f"site/onnxruntime_qnn/{name.partition('/')[2]}" for name in HTP]
    options = {"model": model, "reference": {"y": name}}
    return Made("ort", {"runner": "ort", "options": options}, opens)


def genai(rng: random.Random, folder: Path) -> Made:
    shutil.copytree(ASSETS / "tiny-genai-pipeline", folder, dirs_exist_ok=True)
    config = json.loads((folder / "genai_config.json").read_text())
    text = json.dumps(config)
    library = rng.choice(["QnnHtp.dll", "libQnnHtp.so"])
    (folder / "genai_config.json").write_text(text.replace("libQnnHtp.so", library))
    opens = [f"bundle/{path.name}" for path in folder.glob("*.onnx")]
    opens += ["bundle/tokenizer.json", "bundle/genai_config.json", "site/numpy/core.so"]
    return Made("ort", {"runner": "genai", "prompt": "a"}, opens)


def own(rng: random.Random, folder: Path) -> Made:
    data = some(rng, "data", ".npz")
    argv = [
        "{program}",
        f"--in={data}",
        "--lib",
        "{release}/lib/libmine.so",
        "-o",
        "{work}/out.txt",
    ]
    run = {"runner": "exec", "program": "tool", "libraries": ["libmine.so"],
           "options": {"argv": argv}}  # fmt: skip
    return Made("files", run, [put(folder, data), "bin/tool", "lib/libmine.so", *HTP])


MAKERS: tuple[Maker, ...] = (genie, net_run, mllm, executorch, llama, litert, ort, genai, own)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RuntimeStore:
    files = sdk_files() | {f"lib/{ARM}/{name}": elf() for name in MORE}
    found = RuntimeStore(tmp_path_factory.mktemp("store"))
    found.add(write_tree(tmp_path_factory.mktemp("sdk"), files))
    return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Python package, with its RECORD, in place of those that PyPI would give."""
    names = ("numpy/core.so", "numpy/t.dat", "numpy-1.dist-info/RECORD")
    folder = tmp_path / "packages/site"
    for name in names:
        put(folder, name, "\n".join(f"{one},," for one in names).encode())
    files = tuple(file_ref(folder / name, f"site/{name}") for name in names)
    monkeypatch.setattr(
        "fleet.engine.deploy.resolver.packages_for", lambda *_, **__: Packages(files, {})
    )


@pytest.mark.usefixtures("site")
def test_genai_gets_the_backend_of_the_devices_system(tmp_path: Path, store: RuntimeStore) -> None:
    """Most public configurations name QnnHtp.dll, which a Linux board cannot open."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    made = genai(random.Random(1), folder)
    text = (folder / "genai_config.json").read_text()
    for name, corrected in (("C:\\\\x\\\\QnnHtp.dll", True), ("libQnnHtp.so", False)):
        changed = text.replace("QnnHtp.dll", "libQnnHtp.so").replace("libQnnHtp.so", name)
        (folder / "genai_config.json").write_text(changed)
        builder = built(made, tmp_path, store)
        parts = builder.parts(ARM, "v73", "3.12")
        release = builder.release(parts, builder.manifest(parts))
        sent = {item.name: item.source for item in release.files}["bundle/genai_config.json"]
        assert "libQnnHtp.so" in sent.read_text()
        assert "dll" not in sent.read_text()
        assert (sent.parent != folder) == corrected
        assert foreign(builder.bundle, release, builder.launches(parts))[0] == ()
    (folder / "genai_config.json").write_text(changed.replace("libQnnHtp.so", "QnnCpu.dll"))
    builder = built(made, tmp_path, store)
    release = builder.release(parts, builder.manifest(parts))
    (finding,) = foreign(builder.bundle, release, builder.launches(parts))[0]
    assert finding.refuses
    assert "genai_config.json names QnnCpu.dll, a library of Windows" in finding.message


def built(made: Made, folder: Path, store: RuntimeStore) -> ReleaseBuilder:
    for name in ("tool", "llama-bench"):
        (folder / name).write_bytes(shared_object(elf_type=2, needed=("libc.so.6",)))
    for name in ("libmine.so", "libLiteRtDispatch_Qualcomm.so"):
        (folder / name).write_bytes(shared_object())
    text = {"name": "x", "bundle": {"path": "bundle", "kind": made.kind},
            "runtime": {"version": "2.51.0", "target": ARM}, "run": made.run}  # fmt: skip
    (folder / "playbook.yaml").write_text(json.dumps(text))
    return ReleaseBuilder(load_playbook(folder / "playbook.yaml"), store, print, offline=True)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("right", "omissions"), [(27, 27), pytest.param(200, 100, marks=pytest.mark.gate)]
)
def test_seeded_omissions_are_found_and_right_bundles_are_not_blamed(
    tmp_path: Path, store: RuntimeStore, right: int, omissions: int
) -> None:
    """A library, model or data file of every runner's run is removed from what is sent."""
    rng, found, blamed, tried = random.Random(44), 0, list[tuple[str, str]](), set[str]()
    for number in range(right):
        maker = MAKERS[number % len(MAKERS)]
        folder = tmp_path / str(number)
        (folder / "bundle").mkdir(parents=True)
        made = maker(rng, folder / "bundle")
        builder = built(made, folder, store)
        parts = builder.parts(ARM, "v73", "3.12")
        manifest, launches = builder.manifest(parts), builder.launches(parts)
        release = builder.release(parts, manifest)
        names = {item.name for item in release.files}
        assert set(made.opens) <= names, (maker.__name__, set(made.opens) - names)
        findings = (*unsent(builder.bundle, release, launches),
                    *foreign(builder.bundle, release, launches)[0])  # fmt: skip
        blamed += [(maker.__name__, item.message) for item in findings]
        if number < omissions:
            lost = rng.choice(made.opens)
            files = tuple(item for item in release.files if item.name != lost)
            findings = unsent(builder.bundle, replace(release, files=files), launches)
            assert [item.need for item in findings] == [lost], (maker.__name__, lost, findings)
            assert all(item.refuses and lost in item.message for item in findings)
            found, tried = found + 1, tried | {maker.__name__}
        shutil.rmtree(folder)
    assert (found, blamed, len(tried)) == (omissions, [], len(MAKERS))
