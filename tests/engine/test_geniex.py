"""The runner geniex in a plan: what goes along, and its plugin's QAIRT against the bundle's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from fleet.bundles.preflight import preflight
from fleet.config.playbook import load_playbook
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.model.finding import Finding
from fleet.runtimes.store import RuntimeStore
from tests.engine.test_release_builder import EVK
from tests.runtimes.fakes import ARM, OTHER, elf, skel, target_files, write_tree

ASSET = Path(__file__).parents[2] / "assets" / "tiny-genie"


def planned(folder: Path, build: str, **files: bytes) -> tuple[ReleaseBuilder, list[Finding]]:
    """A plan for an IQ-9075 with an archive whose plugin brings QAIRT `build`."""
    libraries = {**target_files(build), "libQnnHtpV73Skel.so": skel(0x73, build), **files}
    tree = {
        "bin/geniex-bench": elf(),
        "lib/libgeniex.so": elf(),
        "lib/qairt/libgeniex_plugin.so": elf(),
        **{f"lib/qairt/htp-files/{name}": data for name, data in libraries.items()},
    }
    write_tree(folder / "geniex", tree)
    shutil.copytree(ASSET, folder / "bundle", dirs_exist_ok=True)
    (folder / "bundle/metadata.json").write_text("{}")
    text: dict[str, Any] = {
        "name": "g",
        "bundle": "bundle",
        "run": {"runner": "geniex", "program": "geniex/bin/geniex-bench", "prompt": "hi"},
    }
    (folder / "p.yaml").write_text(json.dumps(text))
    store = RuntimeStore(folder / "empty")
    builder = ReleaseBuilder(load_playbook(folder / "p.yaml"), store, lambda _: None, offline=True)
    parts = builder.parts(ARM, "v73")
    builder.opened(parts, builder.manifest(parts))
    found = preflight(builder.bundle, parts.runtime, parts.selection, ARM, EVK)
    return builder, list(found)


def test_the_plugins_qairt_is_the_runtime_of_the_plan(tmp_path: Path) -> None:
    builder, findings = planned(tmp_path, "2.99.0.270101000000")
    parts = builder.parts(ARM, "v73")
    assert parts.runtime.build_id == "2.99.0.270101000000"
    assert [f.rule for f in findings if f.refuses] == []
    assert "runtime-differs" in {f.rule for f in findings}
    manifest = builder.manifest(parts)
    names = {file.name for file in manifest.files}
    assert {"bin/geniex-bench", "lib/qairt/htp-files/libQnnHtp.so", "lib/libQnnHtp.so",
            "bundle/metadata.json", "bundle/tokenizer.json"} <= names  # fmt: skip
    assert manifest.env["ADSP_LIBRARY_PATH"].endswith("/lib")
    assert builder.opened(parts, manifest).findings == ()


def test_an_older_qairt_in_the_plugin_than_in_the_bundle_is_refused(tmp_path: Path) -> None:
    _, findings = planned(tmp_path, "2.31.0.250101000000")
    (refusal,) = [f for f in findings if f.refuses]
    assert refusal.rule == "binary-newer-than-runtime"
    assert "2.31.0" in refusal.need
    assert "archive" in refusal.cure
    assert "fleet runtime fetch" not in refusal.cure


def test_a_mixed_plugin_is_refused(tmp_path: Path) -> None:
    stub = {"libQnnHtpV73Stub.so": elf(build=OTHER)}
    _, findings = planned(tmp_path, "2.99.0.270101000000", **stub)
    (refusal,) = [f for f in findings if f.refuses]
    assert refusal.rule == "runtime-mixed"
    assert "archive" in refusal.cure


def test_a_plugin_without_the_skel_of_the_board_is_refused(tmp_path: Path) -> None:
    only = {"libQnnHtpV73Skel.so": skel(0x79, "2.99.0.270101000000")}
    _, findings = planned(tmp_path, "2.99.0.270101000000", **only)
    (refusal,) = [f for f in findings if f.refuses]
    assert (refusal.rule, refusal.have, refusal.need) == ("runtime-incomplete", "v79", "v73")
