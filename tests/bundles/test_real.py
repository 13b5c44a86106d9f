"""The ways a deploy is doomed, on real context binaries and the real libraries of QAIRT."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from fleet.bundles.inspect import inspect_bundle
from fleet.bundles.preflight import RULES, preflight
from fleet.bundles.rule import REFUSE
from fleet.facts.soc import identify
from fleet.model.bundle import Bundle
from fleet.model.facts import Facts, Soc
from fleet.model.finding import Finding
from fleet.model.runtime import Runtime
from fleet.runtimes.scan import scan_file
from fleet.runtimes.select import select_files
from fleet.runtimes.store import RuntimeStore
from tests.support_runtime import OLD, cached_runtime

from .conftest import ARM, V73, V73_OLD, V75, V81, X86, MakeFolder, make_facts

ASSETS = Path(__file__).parents[2] / "assets" / "tiny-genie"


@pytest.fixture
def runtime(qairt_store: RuntimeStore) -> Runtime:
    found = qairt_store.find("2.51.0", ARM)
    assert found is not None
    return found


def check(
    bundle: Bundle, runtime: Runtime, facts: Facts | None = None, target: str = ARM
) -> dict[str, Finding]:
    facts = facts or make_facts()
    selection = select_files(runtime, target, facts.soc.hexagon_arch)
    sizes = {"bytes_to_send": bundle.size + selection.size, "files_to_send": 20}
    found = preflight(bundle, runtime, selection, target, facts, **sizes)
    return {item.rule: item for item in found}


@pytest.mark.qairt
def test_our_own_bundle_on_an_iq9_is_fine(runtime: Runtime, qnn_system: Path) -> None:
    assert check(inspect_bundle(ASSETS, qnn_system), runtime) == {}


@pytest.mark.qairt
def test_the_chip_of_an_executorch_program_is_read_and_held_against_the_device(
    runtime: Runtime,
) -> None:
    """A QNN context binary stands behind the delegate's header in our .pte."""
    bundle = inspect_bundle(ASSETS.with_name("tiny-executorch"), kind="executorch")
    (item,) = bundle.contexts
    assert (item.soc_type, item.hexagon_arch) == ("SM8650", "v75")
    found = check(bundle, runtime)["arch-mismatch"]
    assert found.refuses
    assert "v75" in found.message
    assert "v73" in found.message
    phone = structs.replace(make_facts(), soc=identify(Soc(), "SM8650"))
    assert "arch-mismatch" not in check(bundle, runtime, phone)


@pytest.mark.qairt
def test_our_own_bundle_on_the_emulator_is_fine(runtime: Runtime, qnn_system: Path) -> None:
    facts = structs.replace(make_facts(), machine="x86_64", nodes=(), libcdsprpc_unversioned=False)
    assert check(inspect_bundle(ASSETS, qnn_system), runtime, facts, X86) == {}


@pytest.mark.qairt
@pytest.mark.parametrize("library", [True, False])
def test_binary_newer_than_runtime(
    library: bool, make_folder: MakeFolder, qnn_system: Path
) -> None:
    """2.51 on 2.50: refused. 2.50 on 2.51: said, and let through."""
    old = cached_runtime(OLD, X86)
    emulated = structs.replace(make_facts(), machine="x86_64")
    reader = qnn_system if library else None
    newer = check(inspect_bundle(make_folder(V73), reader), old, emulated, X86)
    assert newer["binary-newer-than-runtime"].refuses
    assert "5000" in newer["binary-newer-than-runtime"].message
    same = check(inspect_bundle(make_folder(V73_OLD, name="old"), reader), old, emulated, X86)
    assert same == {}


@pytest.mark.qairt
def test_older_binary_on_a_newer_runtime_only_warns(
    make_folder: MakeFolder, runtime: Runtime, qnn_system: Path
) -> None:
    found = check(inspect_bundle(make_folder(V73_OLD), qnn_system), runtime)
    assert {rule: item.severity for rule, item in found.items()} == {"runtime-differs": "warn"}


@pytest.mark.qairt
def test_stub_and_skel_of_different_builds(
    make_folder: MakeFolder, runtime: Runtime, tmp_path: Path
) -> None:
    """The skel is a real one whose build id was edited in a copy, then scanned again."""
    name = "lib/hexagon-v73/unsigned/libQnnHtpV73Skel.so"
    copy = tmp_path / "skel.so"
    data = (runtime.root / name).read_bytes()
    copy.write_bytes(data.replace(b"v2.51.0.260929181845", b"v2.50.4.260831140417"))
    other = scan_file(copy, name)
    libraries = tuple(other if item.path == name else item for item in runtime.libraries)
    mixed = replace(runtime, libraries=libraries)
    found = check(inspect_bundle(make_folder(V73)), mixed)["runtime-mixed"]
    assert found.refuses
    assert found.have == "2.50.4.260831140417"
    assert found.need == "2.51.0.260929181845"
    assert "1008" in found.message


@pytest.mark.qairt
@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize("arch", ["v75", "v81"])
def test_wrong_arch(
    arch: str, library: bool, make_folder: MakeFolder, runtime: Runtime, qnn_system: Path
) -> None:
    folder = make_folder({"v75": V75, "v81": V81}[arch])
    bundle = inspect_bundle(folder, qnn_system if library else None)
    found = check(bundle, runtime)["arch-mismatch"]
    assert found.refuses
    assert (found.have, found.need) == (arch, "v73")


@pytest.mark.qairt
def test_gcc94_target_for_v73(make_folder: MakeFolder, runtime: Runtime) -> None:
    target = "aarch64-ubuntu-gcc9.4"
    v68 = replace(
        runtime,
        targets=(target,),
        libraries=tuple(
            structs.replace(item, path=item.path.replace(ARM, target)) for item in runtime.libraries
        ),
    )
    facts = make_facts()
    selection = select_files(v68, target, "v73")
    found = preflight(inspect_bundle(make_folder(V73)), v68, selection, target, facts)
    wrong = [item for item in found if item.rule == "target-wrong"]
    assert {item.need for item in wrong} == {"v73", "libGenie.so"}
    assert all("gcc11.2" in item.cure for item in wrong)


@pytest.mark.qairt
def test_missing_tokenizer(make_folder: MakeFolder, runtime: Runtime) -> None:
    folder = make_folder(V73)
    (folder / "tokenizer.json").unlink()
    found = check(inspect_bundle(folder), runtime)["files-missing"]
    assert found.refuses
    assert found.need == "tokenizer.json"


@pytest.mark.qairt
def test_truncated_seen_by_the_library(
    make_folder: MakeFolder, runtime: Runtime, qnn_system: Path
) -> None:
    folder = make_folder(V73)
    (folder / V73).write_bytes((folder / V73).read_bytes()[:-1])
    found = check(inspect_bundle(folder, qnn_system), runtime)
    assert {rule for rule, item in found.items() if item.refuses} == {"context-damaged"}
    assert "30010" in found["context-damaged"].message


@pytest.mark.qairt
@pytest.mark.parametrize("library", [True, False])
def test_damage_seen_by_the_hash_alone(
    library: bool, tmp_path: Path, runtime: Runtime, qnn_system: Path
) -> None:
    """One byte of the weights: QNN would run it and give wrong numbers."""
    folder = tmp_path / "tiny-genie"
    shutil.copytree(ASSETS, folder)
    (shard,) = folder.glob("*.bin")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    found = check(inspect_bundle(folder, qnn_system if library else None), runtime)
    assert set(found) == {"hash-mismatch"}
    assert found["hash-mismatch"].have == hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.qairt
def test_truncated_seen_by_markers_and_sums(tmp_path: Path, runtime: Runtime) -> None:
    folder = tmp_path / "tiny-genie"
    shutil.copytree(ASSETS, folder)
    (shard,) = folder.glob("*.bin")
    shard.write_bytes(shard.read_bytes()[:-4096])
    bundle = inspect_bundle(folder)
    assert bundle.contexts[0].read_by == "markers"
    assert not bundle.usable
    assert check(bundle, runtime)["hash-mismatch"].refuses


@pytest.mark.qairt
def test_unknown_soc_without_an_override(make_folder: MakeFolder, runtime: Runtime) -> None:
    bundle = inspect_bundle(make_folder(V73))
    seen = Soc(kernel_soc_id=4711, model="Some New EVK")
    unknown = structs.replace(make_facts(), soc=identify(seen))
    found = check(bundle, runtime, unknown)
    assert found["soc-unknown"].refuses
    assert "soc: QCS9075" in found["soc-unknown"].cure
    assert "arch-mismatch" not in found
    override = structs.replace(make_facts(), soc=identify(seen, "QCS9075"))
    assert check(bundle, runtime, override) == {}


@pytest.mark.qairt
def test_what_the_emulator_showed_is_refused_by_the_library_of_devices_too(
    runtime: Runtime,
) -> None:
    """Hardware is never refused on evidence of the emulator alone: the refusals that were measured
    there, and are refusals on devices too, stand in the devices' own libQnnHtp.
    """
    library = (runtime.root / "lib" / ARM / "libQnnHtp.so").read_bytes()
    for words in (b"Using newer context binary on old SDK", b"failed to load OpPackage in HexNN"):
        assert words in library
    measured = {rule.id for rule in RULES if rule.severity == REFUSE and "x86_64" in rule.source}
    assert measured == {"op-package-provider", "op-package-entry"}
