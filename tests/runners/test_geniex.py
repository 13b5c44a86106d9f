"""Runner geniex: what it starts and sends, and how it reads what geniex-bench writes.

The JSON files of `shapes` have the keys that each version of sdk/benchmark of qualcomm/GenieX
writes, with numbers of ours; none was written by a program.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.model.errors import InputError
from fleet.model.files import file_ref
from fleet.model.playbook import RunSpec
from fleet.model.suite import Suite, SuiteQuestion
from fleet.profiles.formats import detect, geniex
from fleet.profiles.formats.base import Profile
from fleet.runners import Ended, Kit, Outcome
from fleet.runners.registry import OWN

from .kits import kit

RUNNER = OWN["geniex"]
GENIE = ("genie_config.json", "tokenizer.json", "metadata.json", "part_1_of_1.bin")
NEW = b"--chat-template --log"  # options that stand in the help of newer programs


def release(folder: Path, *, new: bool = True) -> Path:
    """A folder as a release archive has it; returns the program."""
    for name in (
        "bin/geniex-bench",
        "lib/libgeniex.so",
        "lib/llama_cpp/libgeniex_plugin.so",
        "lib/llama_cpp/libllama.so",
        "lib/llama_cpp/libggml-htp-v73.so",
        "lib/qairt/libgeniex_plugin.so",
        "lib/qairt/libgeniex_core.so",
        "lib/qairt/htp-files/libQnnHtp.so",
        "lib/qairt/htp-files/libQnnHtpV73Skel.so",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() + (NEW if new and name.startswith("bin") else b""))
    return folder / "bin/geniex-bench"


def of(
    program: Path, kind: str = "genie", names: tuple[str, ...] = GENIE, prompt: str = "hello",
    **options: Any,
) -> Kit:  # fmt: skip
    run = RunSpec("geniex", prompt=prompt, timeout=30.0, program=program, options=options)
    return kit(kind, names, run)


def after(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


def shape(version: str, plugin: str = "llama_cpp", **more: Any) -> dict[str, Any]:
    """One file of geniex-bench with two runs; the keys of its version."""
    number = int(version)
    runs = []
    for index in range(2):
        run: dict[str, Any] = {
            "run_idx": index,
            "ttft_us": 50000 + index,
            "prompt_time_us": 40000,
            "decode_time_us": 2000000,
            "prompt_tokens": 512,
            "gen_tokens": 128,
            "prefill_tps": 12800.0,
            "decode_tps": 64.25 + index,
            "stop_reason": "length",
        }
        if number >= 4:
            run["media_us"] = 7000 * index
        runs.append(run)
    spread = {"median": 1.0, "min": 0.5, "max": 2.0}
    if number >= 2:
        spread |= {"mean": 1.1, "stdev": 0.1}
    agg: dict[str, Any] = {key: dict(spread) for key in ("ttft_ms", "prefill_tps", "decode_tps")}
    agg |= {"gen_tokens": {"median": 128.0}, "prompt_tokens": {"median": 512.0}}
    data: dict[str, Any] = {
        "schema_version": version,
        "cell_id": "cell",
        "plugin": plugin,
        "device": "npu",
        "device_id": "HTP0",
        "model_path": "/m",
        "params": {"warmup": 1},
        "runs": runs,
        "agg": agg,
    }
    if number >= 2:
        data["model_size_bytes"] = 5
    if number >= 3:
        data |= {"qairt_version": "0.1.2", "llama_cpp_version": "b1"}
    if number >= 4:
        agg["media_ms"] = {"median": 3.5}
    if number >= 5:
        data["geniex_version"] = "v0.9.3"
        data["params"] |= {"top_p": 0.0, "n_ubatch": 0, "power_mode": "burst"}
    return data | more


def profiles(data: dict[str, Any]) -> list[Profile]:
    found = detect.read(json.dumps(data).encode())
    made = [found] if isinstance(found, Profile) else found
    return [one for one in made if isinstance(one, Profile)]


@pytest.mark.parametrize("version", ["1", "2", "3", "4", "5", "6"])
@pytest.mark.parametrize("plugin", ["llama_cpp", "qairt"])
def test_each_version_is_read_run_by_run_and_every_number_is_its_own(
    version: str, plugin: str
) -> None:
    data = shape(version, plugin)
    made = profiles(data)
    assert len(made) == 2
    padded = plugin == "qairt" and int(version) >= 3
    for profile, run in zip(made, data["runs"], strict=True):
        metrics, others = profile.metrics, profile.metrics.others
        assert metrics.ttft_ms == pytest.approx(run["ttft_us"] / 1000)
        assert metrics.decode_tps == run["decode_tps"]
        assert metrics.decode_ms == 2000.0
        assert metrics.generated_tokens == 128
        assert others["prompt_ms"].value == 40.0
        assert metrics.prompt_tokens == (None if padded else 512)
        assert metrics.prompt_tps == (None if padded else 12800.0)
        assert ("padded_prompt_tokens" in others) == ("padded_prompt_tps" in others) == padded
        assert ("media_ms" in others) == bool(run.get("media_us"))
        assert profile.problems == ()


def test_a_prompt_that_is_no_multiple_of_the_chunk_was_not_padded() -> None:
    """Version 3 counts the tokens alone before 7ad20636, and padded ones after it."""
    data = shape("3", "qairt")
    for run in data["runs"]:
        run["prompt_tokens"] = 500
    assert [one.metrics.prompt_tokens for one in profiles(data)] == [500, 500]


@pytest.mark.parametrize(
    ("device", "problem"),
    [("cpu", "cpu-fallback"), ("gpu", "cpu-fallback"), ("hybrid", "unreadable"), ("npu", "")],
)
def test_where_it_ran_is_what_the_file_says(device: str, problem: str) -> None:
    for profile in profiles(shape("4", device=device)):
        assert [text.partition(":")[0] for text in profile.problems] == [problem] * bool(problem)


def test_the_release_has_the_plugin_that_is_used_and_the_folders_of_the_archive(
    tmp_path: Path,
) -> None:
    program = release(tmp_path)
    names = {file.name for file in RUNNER.files(of(program))}
    assert names == {
        "bin/geniex-bench", "lib/libgeniex.so", "lib/qairt/libgeniex_plugin.so",
        "lib/qairt/libgeniex_core.so", "lib/libgeniex_core.so",
        "lib/qairt/htp-files/libQnnHtp.so", "lib/libQnnHtp.so",
        "lib/qairt/htp-files/libQnnHtpV73Skel.so", "lib/libQnnHtpV73Skel.so",
    }  # fmt: skip
    gguf = {file.name for file in RUNNER.files(of(program, "llama.cpp", ("m.gguf",)))}
    assert not any("qairt" in name for name in gguf)
    assert {"lib/llama_cpp/libggml-htp-v73.so", "lib/libggml-htp-v73.so"} <= gguf


def test_a_program_without_its_plugin_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "geniex-bench"
    program.write_bytes(b"x")
    with pytest.raises(InputError, match="the plugin qairt of GenieX is missing"):
        RUNNER.files(of(program))


def test_a_genie_bundle_is_run_by_its_folder_and_a_gguf_by_its_file(tmp_path: Path) -> None:
    program = release(tmp_path)
    start = RUNNER.start(of(program))
    assert after(start.argv, "--plugin") == "qairt"
    assert after(start.argv, "-m") == "{release}/bundle"
    assert after(start.argv, "--prompt-file") == "{work}/prompt.txt"
    assert "--accuracy" in start.argv
    assert start.env == {"GENIEX_PLUGIN_PATH": "{release}/lib"}
    gguf = of(program, "llama.cpp", ("mmproj-m.gguf", "m.gguf"), device="hybrid", ctx_size=512)
    argv = RUNNER.start(gguf).argv
    assert after(argv, "-m") == "{release}/bundle/m.gguf"
    assert (after(argv, "-c"), after(argv, "--log")) == ("512", "debug")
    older = release(tmp_path / "older", new=False)  # seen: --log is an unknown argument there
    older.write_bytes(older.read_bytes() + b"\0--logits\0")
    names = ("mmproj-m.gguf", "m.gguf")
    assert "--log" not in RUNNER.start(of(older, "llama.cpp", names, device="hybrid")).argv


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("genie", {}, ["--seed", "0"]),
        ("genie", {"seed": 7, "temperature": 0}, ["--seed", "7", "--temperature", "-1"]),
        ("llama.cpp", {}, ["--seed", "42", "--temperature", "-1"]),
        ("llama.cpp", {"seed": 7, "temperature": 0.5}, ["--seed", "7", "--temperature", "0.5"]),
    ],
)
def test_the_bundle_samples_unless_the_playbook_says_how(
    tmp_path: Path, kind: str, options: dict[str, Any], words: list[str]
) -> None:
    """GenieX reads 0 as `not given`: of the bundle, or 0.8; below 0 is the likeliest token."""
    names = GENIE if kind == "genie" else ("m.gguf",)
    argv = RUNNER.start(of(release(tmp_path), kind, names, **options)).argv
    at = argv.index("--seed")
    assert list(argv[at : at + len(words)]) == words
    assert ("--temperature" in argv) == ("--temperature" in words)


@pytest.mark.parametrize(("arch", "sent"), [("v73", {73}), ("v79", {79}), ("", {73, 79})])
def test_only_the_libraries_of_the_boards_hexagon_are_sent(
    tmp_path: Path, arch: str, sent: set[int]
) -> None:
    program = release(tmp_path)
    for name in ("qairt/htp-files/libQnnHtpV79Stub.so", "qairt/htp-files/libqnnhtpv79.cat",
                 "llama_cpp/libggml-htp-v79.so"):  # fmt: skip
        (tmp_path / "lib" / name).write_bytes(b"79")
    for of_kind in (of(program), of(program, "llama.cpp", ("m.gguf",))):
        names = [file.name for file in RUNNER.files(replace(of_kind, arch=arch))]
        found = {int(made[1]) for name in names if (made := re.search(r"[vV](7\d)", name))}
        assert found == sent
        assert "lib/libgeniex.so" in names


def test_random_tokens_repetitions_and_media_have_no_text(tmp_path: Path) -> None:
    program = release(tmp_path)
    argv = RUNNER.start(of(program, prompt_tokens=256, repetitions=3, warmups=1)).argv
    assert (after(argv, "-p"), after(argv, "-r"), after(argv, "--warmup")) == ("256", "3", "1")
    assert not {"--prompt-file", "--accuracy"} & set(argv)
    seeing = of(program, "llama.cpp", ("m.gguf", "mmproj-m.gguf", "a.png"), images=["a.png"])
    argv = RUNNER.start(seeing).argv
    assert after(argv, "--mmproj-path") == "{release}/bundle/mmproj-m.gguf"
    assert after(argv, "--image") == "{release}/bundle/a.png"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"ctx_size": 512}, "`ctx_size` under .* does not fit"),
        ({"device": "cpu"}, "`device` under .* the plugin qairt runs on the NPU alone"),
        ({"plugin": "llama_cpp"}, "cannot run a bundle of the kind genie"),
        ({"text": True, "repetitions": 2}, "`text` under"),
        ({"device": "tpu"}, "device of GenieX"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, Any], match: str
) -> None:
    one = of(release(tmp_path), **options)

    def refused() -> None:
        RUNNER.check(one.run)
        RUNNER.start(one)

    with pytest.raises(InputError, match=match):
        refused()


@pytest.mark.parametrize("missing", GENIE[:3])
def test_a_bundle_without_a_file_that_genie_x_opens_by_name_is_refused(
    tmp_path: Path, missing: str
) -> None:
    names = tuple(name for name in GENIE if name != missing)
    with pytest.raises(InputError, match=f"GenieX opens {missing} of a bundle"):
        RUNNER.start(of(release(tmp_path), names=names))


def test_a_prompt_gets_its_template_once(tmp_path: Path) -> None:
    """Newer programs put the prompt of accuracy mode into the model's template themselves."""
    prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    old = of(release(tmp_path / "old", new=False), prompt=prompt)
    assert "--accuracy" in RUNNER.start(old).argv
    program = release(tmp_path / "new")
    with pytest.raises(InputError, match="words of a chat template") as error:
        RUNNER.start(of(program, prompt=prompt))
    assert "text: false" in error.value.hint
    assert "--accuracy" not in RUNNER.start(of(program, prompt=prompt, text=False)).argv
    with pytest.raises(InputError, match="three dashes"):
        RUNNER.start(of(program, prompt="one\n---\ntwo"))


def read(one: Kit, data: dict[str, Any], stdout: bytes = b"", **more: Any) -> Outcome:
    files = {"geniex.json": json.dumps(data).encode()}
    return RUNNER.read(RUNNER.start(one), one, Ended(0, stdout, files, **more))


def test_text_times_and_finish_of_a_run(tmp_path: Path) -> None:
    data = shape("6", "qairt")
    del data["runs"][1]
    said = b"[gen ] Paris.\n[gen ] \n[gen ] [ok  ] is a word\n[ok  ] cell  plugin=qairt\n"
    found = read(of(release(tmp_path)), data, said)
    assert found.text == "Paris.\n\n[ok  ] is a word"
    assert (found.finish, found.problems) == ("token-limit", ())
    assert found.metrics.others["padded_prompt_tokens"].value == 512
    assert found.metrics.ttft_ms == 50.0
    assert set(found.raw) == {"geniex.json"}


def test_repetitions_of_the_program_are_said(tmp_path: Path) -> None:
    found = read(of(release(tmp_path), repetitions=2, text=False), shape("6", "qairt"))
    assert "medians of 2 repetitions of geniex-bench" in found.marks
    assert found.metrics.ttft_ms == 1.0


@pytest.mark.parametrize(
    ("device", "log", "problem", "mark"),
    [
        ("cpu", b"", "", "cpu"),
        ("hybrid", b"load_tensors: HTP0 model buffer size = 3 MiB\n", "", ""),
        ("hybrid", b"load_tensors: CPU model buffer size = 3 MiB\n", "cpu-fallback", ""),
        ("hybrid", b"", "cpu-fallback", ""),
        ("npu", b"", "", ""),
    ],
)
def test_hybrid_counts_only_with_weights_on_the_npu(
    tmp_path: Path, device: str, log: bytes, problem: str, mark: str
) -> None:
    one = of(release(tmp_path), "llama.cpp", ("m.gguf",), device=device)
    found = read(one, shape("6", device=device), stderr=log)
    assert [text.partition(":")[0] for text in found.problems] == [problem] * bool(problem)
    assert (mark in found.marks) == bool(mark)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"agg": 1}', b"\xff", b'{"agg": {}}'])
def test_a_damaged_file_is_a_problem_and_no_error(tmp_path: Path, content: bytes) -> None:
    one = of(release(tmp_path))
    found = RUNNER.read(RUNNER.start(one), one, Ended(0, b"", {"geniex.json": content}))
    assert [text.partition(":")[0] for text in found.problems] == ["unreadable"]
    failed = RUNNER.read(RUNNER.start(one), one, Ended(1, b"", {"geniex.json": content}))
    assert "failed: exit status 1" in failed.problems


def questions(*prompts: str, limits: tuple[int, ...] = (16,)) -> Suite:
    made = tuple(
        SuiteQuestion(f"q{number}", prompt, max_tokens=limits[number % len(limits)])
        for number, prompt in enumerate(prompts)
    )
    return Suite("s", made, 1, "0" * 64)


def test_a_suite_is_asked_in_one_start(tmp_path: Path) -> None:
    runner: Any = RUNNER
    one, suite = of(release(tmp_path)), questions("What?", "Why?")
    start = runner.ask(one, suite)
    assert start.prompt == b"What?\n---\nWhy?"
    assert after(start.argv, "-n") == "16"
    data = shape("6")
    data["runs"][1]["stop_reason"] = "eos"
    said = b"[sep ] prompt 1/2\n[gen ] A.\n[sep ] prompt 2/2\n[gen ] B\n[gen ] C\n"
    ended = Ended(0, said, {"geniex.json": json.dumps(data).encode()})
    answers = runner.answers(start, suite, ended)
    assert [(one.name, one.text, one.finish, one.generated_tokens) for one in answers] == [
        ("q0", "A.", "token-limit", 128), ("q1", "B\nC", "eos", 128),
    ]  # fmt: skip
    assert runner.answers(start, suite, replace(ended, stdout=said[:20])) == []
    assert runner.ask(one, questions("a", "b", limits=(1, 2))) is None
    assert runner.ask(one, questions("a\n---\nb")) is None


def test_a_file_beside_the_configuration_goes_along(tmp_path: Path) -> None:
    one = of(release(tmp_path))
    (tmp_path / "b").mkdir()
    (tmp_path / "b/embedding_weights.raw").write_bytes(b"x")
    one = replace(one, bundle=replace(one.bundle, root=tmp_path / "b"))
    wanted = file_ref(tmp_path / "b/embedding_weights.raw", "bundle/embedding_weights.raw")
    assert wanted in RUNNER.files(one)


def test_the_text_of_one_prompt_has_no_separator() -> None:
    assert geniex.texts("[gen ] a\n[gen ] b\n[ok  ] x\n") == ["a\nb"]
    assert geniex.texts("[ok  ] x\n") == []
