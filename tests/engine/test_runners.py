"""Runners beside genie through the whole engine, on a board behind a real sshd.

The programs are shell scripts that say what they are; what is tested is what gets there, how
it is started and what becomes of what it prints.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.engine.deploy.release_builder import ReleaseBuilder
from fleet.model.errors import InputError, PlaybookError

from ..bundles.test_content import pte
from ..runners.kits import gguf
from .conftest import Bench

LLAMA = """#!/bin/sh
echo "stand-in for llama-bench" >&2
[ -f "$2" ] && [ "$LD_LIBRARY_PATH" != "" ] || exit 1
[ "${LD_LIBRARY_PATH%%:*}" = "$ADSP_LIBRARY_PATH" ] || exit 2
echo '[{"devices": "HTP0", "backends": "HTP", "n_prompt": 8, "n_gen": 0, "avg_ts": 80.5},'
echo ' {"devices": "HTP0", "backends": "HTP", "n_prompt": 0, "n_gen": 4, "avg_ts": 9.5}]'
"""


def written(folder: Path, text: str, program: str, **files: str) -> Path:
    (folder / "bundle").mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / "bundle" / name.replace("_", ".")).write_text(content)
    (folder / "llama-bench").write_text(program)
    path = folder / "playbook.yaml"
    path.write_text(text)
    return path


def test_llama_cpp_needs_no_qairt_at_all(bench: Bench, tmp_path: Path) -> None:
    text = """
name: llama
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-bench, libraries: ["lib*.so"], max_tokens: 4, options: {prompt_tokens: 8}}
"""
    (tmp_path / "libggml-hexagon.so").write_bytes(b"\x7fELF")
    (tmp_path / "libggml-htp-v73.so").write_bytes(b"\x7fELF2")
    bench.playbook = load_playbook(written(tmp_path, text, LLAMA, model_gguf=""))
    (tmp_path / "bundle" / "model.gguf").write_bytes(gguf())
    (result,) = bench.operation(offline=True).deploy()
    assert result.error is None, result.error
    assert result.plan is not None
    names = {one.name for one in result.plan.manifest.files}
    assert names == {
        "bin/llama-bench",
        "bundle/model.gguf",
        "lib/libggml-hexagon.so",
        "lib/libggml-htp-v73.so",
    }
    (record,) = result.records
    assert (record.metrics.prompt_tps, record.metrics.decode_tps) == (80.5, 9.5)
    assert record.problems == ()
    assert record.origin["runtime"] == "none"
    (again,) = bench.operation(offline=True).deploy()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)


@pytest.mark.qairt
def test_exec_without_a_health_probe_says_so_in_its_plan(bench: Bench, tmp_path: Path) -> None:
    text = """
name: tool
bundle: {path: bundle, kind: files}
runtime: "2.51.0"
run: {program: llama-bench, prompt: hello, options: {stdin: prompt}}
"""
    program = '#!/bin/sh\necho "heard $(cat)"\n'
    bench.playbook = load_playbook(written(tmp_path, text, program, words_txt="x"))
    (result,) = bench.operation(offline=True).deploy()
    assert result.error is None, result.error
    assert result.plan is not None
    assert "health" not in result.plan.manifest.origin
    assert not any("session" in one.describe() for one in result.plan.actions)
    assert result.records[0].text == "heard hello\n"


QNN_EXECUTOR_RUNNER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    --etdump_path) : > "$2" ;;
    --profile_level) echo "Setting runtime profile level: $2" >&2 ;;
  esac
  shift
done
"""


@pytest.mark.qairt
@pytest.mark.parametrize(("options", "marks"), [("{}", ()), ("{profile_level: 2}", ("profiled",))])
def test_a_profiled_run_is_marked_in_its_record(
    bench: Bench, tmp_path: Path, options: str, marks: tuple[str, ...]
) -> None:
    text = f"""
name: pte
bundle: {{path: bundle, kind: executorch}}
runtime: "2.51.0"
run: {{program: qnn_executor_runner, options: {options}}}
"""
    path = written(tmp_path, text, "", model_pte="")
    (tmp_path / "bundle" / "model.pte").write_bytes(pte(200))
    (tmp_path / "bundle" / "input_list.txt").write_text("a.raw\n")
    (tmp_path / "qnn_executor_runner").write_text(QNN_EXECUTOR_RUNNER)
    bench.playbook = load_playbook(path)
    (result,) = bench.operation(offline=True).deploy()
    assert result.error is None, result.error
    (record,) = result.records
    assert (record.marks, record.problems) == (marks, ())


BAD = [
    ("{path: bundle, kind: mllm}", "{runner: genie, prompt: a}", ("the bundle kind is mllm, "
    "but the runner genie runs only genie")),
    ("{path: bundle, kind: files}", "{runner: exec}", "needs `program:`"),
    ("{path: bundle, kind: files}", "{program: llama-bench, options: {x: 1}}",
     "unknown key 'x', under `run: options:`"),
]  # fmt: skip


@pytest.mark.parametrize(("bundle", "run", "words"), BAD)
def test_what_does_not_fit_is_one_error(
    bench: Bench, tmp_path: Path, bundle: str, run: str, words: str
) -> None:
    text = f"name: x\nbundle: {bundle}\nrun: {run}\n"
    playbook = load_playbook(written(tmp_path, text, "", model_bin="x"))
    with pytest.raises(PlaybookError) as caught:
        ReleaseBuilder(playbook, bench.store, bench.events.append, offline=True)
    assert words in caught.value.message
    assert caught.value.hint


def test_two_files_for_one_place_are_refused(bench: Bench, tmp_path: Path) -> None:
    text = """
name: x
bundle: {path: bundle, kind: mllm}
runtime: "2.51.0"
run: {program: llama-bench, libraries: [config.json], prompt: a}
"""
    path = written(tmp_path, text, "", tokenizer_json="t", config_json="c")
    (tmp_path / "config.json").write_text("another")
    (tmp_path / "bundle" / "model.mllm").write_text("m")
    table = ReleaseBuilder(load_playbook(path), bench.store, bench.events.append, offline=True)
    with pytest.raises(InputError, match=r"files have the name config"):
        table.manifest(table.parts("aarch64-oe-linux-gcc11.2", "v73"))


FLAT = {  # target and files
    "mllm": (
        "aarch64-oe-linux-gcc11.2",
        {"tokenizer_json": "t", "config_json": "c", "model_mllm": "m"},
    ),
    "executorch": ("x86_64-linux-clang", {"model_pte": "p", "tokenizer_json": "t"}),
}


@pytest.mark.qairt
@pytest.mark.parametrize("kind", FLAT)
def test_a_flat_bundle_may_have_files_named_like_fleets_own(
    bench: Bench, tmp_path: Path, kind: str
) -> None:
    """Program, libraries and bundle are at the root of the release there."""
    target, files = FLAT[kind]
    text = f"""
name: x
bundle: {{path: bundle, kind: {kind}}}
runtime: {{version: "2.51.0", target: {target}}}
run: {{runner: {kind}, program: llama-bench, prompt: a}}
"""
    path = written(tmp_path, text, "#!/bin/sh\n", **files, manifest_json="{}")
    bench.playbook = load_playbook(path)
    (planned,) = bench.operation(offline=True).plan()
    assert planned.plan is not None, planned.error
    assert "manifest.json" in {item.name for item in planned.plan.manifest.files}


def test_a_bundle_of_the_wrong_kind_says_what_it_lacks(bench: Bench, tmp_path: Path) -> None:
    text = "name: x\nbundle: {path: bundle, kind: executorch}\nrun: {program: llama-bench}\n"
    playbook = load_playbook(written(tmp_path, text, "", model_bin="x"))
    with pytest.raises(Exception, match=r"no ") as caught:
        ReleaseBuilder(playbook, bench.store, bench.events.append, offline=True)
    assert "`kind:`" in getattr(caught.value, "hint", "")
    assert replace(playbook, bundle_kind="files").bundle_kind == "files"
