"""Runners beside genie: what they start, send and collect; what they read, and what garbage is."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.bundles.inspect import inspect_bundle
from fleet.config.runners import DEFAULT_RUNNERS, TABLE
from fleet.data import shipped_text
from fleet.model.bundle import KINDS
from fleet.model.errors import InputError
from fleet.model.metrics import METRICS
from fleet.model.playbook import RunSpec
from fleet.model.record import Measure
from fleet.runners import FLAT, Defaults, Ended, Kit
from fleet.runners.exec import uses_qairt
from fleet.runners.registry import OWN, described, options_of, runner

from ..profiles.formats.test_others import ESTIMATE
from .kits import kit

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "profiles" / "data"
MLLM = ("qwen3-1.7B-lpbq-sha.bin", "qwen3-tokenizer.json", "config_1.7B.json")


def test_what_playbooks_know_of_our_runners_is_what_their_classes_say() -> None:
    made = json.dumps(described(), indent=1) + "\n"
    assert shipped_text(TABLE) == made, "run python -m fleet.runners.registry"
    assert set(DEFAULT_RUNNERS) == {*KINDS, "runtime"}, "each kind has a runner of its own"


@pytest.mark.parametrize("name", OWN)
def test_a_runner_says_what_it_is(name: str) -> None:
    own = OWN[name]
    assert isinstance(own, Defaults)
    assert set(own.kinds) <= set(KINDS)
    assert set(own.default_for) <= set(own.kinds)
    assert set(own.formats) <= {word for metric in METRICS for word in metric.formats}
    assert own.options is not None
    assert set(own.instead_of_prompt) <= options_of(own).keys()
    with pytest.raises(InputError, match="nothing"):
        own.check(RunSpec(runner=name, options={"nothing": 1}, program=Path("p")))
    page = (ROOT / "docs" / "runners.md").read_text("utf-8")
    assert f"`{name}`" in (ROOT / "docs" / "playbook.md").read_text("utf-8")
    assert [word for word in options_of(own) if f"`{word}`" not in page] == []


@pytest.mark.parametrize("name", ["mllm", "executorch", "llama.cpp"])
def test_a_runner_that_needs_a_program_says_which(name: str) -> None:
    own = OWN[name]
    assert isinstance(own, Defaults)
    with pytest.raises(InputError, match="needs a program") as error:
        own.check(RunSpec(runner=name))
    assert own.needs_program
    assert own.needs_program in error.value.hint


def spec(**changes: Any) -> RunSpec:
    return RunSpec(**{"prompt": "hello", "timeout": 30.0, **changes})


def after(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_mllm_starts_in_one_folder_with_the_prompt_on_standard_input() -> None:
    run = spec(program=Path("/x/mllm-qwen3-aot-runner"), options={"ar_len": 32}, prompt="hi\n")
    start = OWN["mllm"].start(kit("mllm", MLLM, run))
    assert start.argv == (
        *("{release}/mllm-qwen3-aot-runner", "-m", MLLM[0], "-t", MLLM[1], "-c", MLLM[2]),
        *("--ar_len", "32"),
    )
    assert (start.cwd, start.prompt, start.feeds_prompt) == ("", b"hi\n", True)
    assert OWN["mllm"].layout == FLAT
    assert start.marks == ("untested: nobody has tested fleet with the real mllm program yet",)


def test_mllm_reads_what_comes_after_its_question() -> None:
    """aot_run.cpp: fmt::print of the question, tokens as they come, a newline."""
    one = kit("mllm", MLLM, spec(program=Path("/x/r")))
    out = "💬 Prompt text (or 'exit/quit'): Chocolate chip.\n".encode()
    start = OWN["mllm"].start(one)
    found = OWN["mllm"].read(start, one, Ended(0, out, seconds=2.5))
    assert (found.text, found.problems) == ("Chocolate chip.", ())
    assert found.metrics.others["wall_ms"].value == 2500
    assert found.metrics.decode_tps is None, "the runner prints no time, and none is made up"
    fork = b"Prefill: 698 ms, 1172.3 tok/s\ndecode speed: 31.5 tokens/s\n"
    rates = OWN["mllm"].read(start, one, Ended(0, out + fork)).metrics
    assert (rates.decode_tps, rates.prompt_tps) == (31.5, 1172.3)
    nothing = OWN["mllm"].read(start, one, Ended(0, b"Prompt text (or 'exit/quit'): \n"))
    assert nothing.problems == ("cut: the program printed no token",)
    assert OWN["mllm"].read(start, one, Ended(1, b"")).problems == ("failed: exit status 1",)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (spec(), "run: program:"),
        (spec(program=Path("/x"), prompt="two\nlines"), "one line"),
        (spec(program=Path("/x"), options={"ar_len": 0}), "ar_len"),
        (spec(program=Path("/x"), options={"arlen": 32}), "arlen"),
        (spec(program=Path("/x"), options={"ar_len": "32"}), "ar_len"),
    ],
)
def test_mllm_refuses(run: RunSpec, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        OWN["mllm"].check(run)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (MLLM[1:], {}, "no model"),
        ((*MLLM, "other.bin"), {}, "several files that could be the model"),
        (MLLM, {"tokenizer": "gone.json"}, "`tokenizer` .* is gone.json"),
    ],
)
def test_files_of_the_bundle_are_found_or_named(
    names: tuple[str, ...], options: dict[str, Any], words: str
) -> None:
    one = kit("mllm", names, spec(program=Path("/x"), options=options))
    with pytest.raises(InputError, match=words):
        OWN["mllm"].start(one)


NET = {"inputs": [["a.raw", "mask:=b.raw"], ["c.raw", "mask:=b.raw"]]}
NET_FILES = ("model.bin", "a.raw", "b.raw", "c.raw")


def test_qnn_net_run_writes_its_input_list() -> None:
    one = kit("qnn", NET_FILES, spec(options={**NET, "profiling": "optrace"}), has_tool=True)
    start = OWN["qnn-net-run"].start(one)
    assert start.argv[:3] == ("sh", "{release}/run/net_run.sh", "{work}")
    assert json.loads(start.argv[3]) == {"devices": [{"cores": [{"perf_profile": "burst"}]}]}
    assert start.argv[5:8] == ("{release}/bin/qnn-net-run", "--retrieve_context", "model.bin")
    assert "--perf_profile" not in start.argv, "deprecated for HTP"
    assert after(start.argv, "--keep_num_outputs") == "0"
    assert start.config == "a.raw mask:=b.raw\nc.raw mask:=b.raw\n"
    assert after(start.argv, "--input_list") == "{work}/config.json"
    assert after(start.argv, "--profiling_level") == "detailed"
    assert after(start.argv, "--profiling_option") == "optrace"
    assert after(start.argv, "--backend") == "{release}/lib/libQnnHtp.so"
    assert start.cwd == "bundle", "names in the list are those of the bundle"
    assert "output/*.log" in start.collect
    health = OWN["qnn-net-run"].health(one, 9)
    assert health is not None
    assert after(health.argv, "--num_inferences") == "1"
    assert "--profiling_level" not in health.argv
    dlc = kit("qnn", ("m.dlc", "a.raw"), spec(options={"inputs": [["a.raw"]]}))
    argv = OWN["qnn-net-run"].start(dlc).argv
    assert after(argv, "--dlc_path") == "m.dlc"
    assert after(argv, "--model") == "{release}/lib/libQnnModelDlc.so"


@pytest.mark.parametrize(
    "options",
    [{"inputs": 3}, {"inputs": []}, {"inputs": [["a b.raw"]]}, {"inputs": [["x:="]]}, {"x": 1}],
)
def test_qnn_net_run_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        OWN["qnn-net-run"].check(spec(options=options))


def test_the_profile_is_viewed_by_the_sdk_on_this_host(tmp_path: Path) -> None:
    """The viewer here is a script that copies a true CSV; the real one is in no wheel."""
    one = kit("qnn", NET_FILES, spec(options=NET))
    files = {
        "output/qnn-profiling-data_0.log": b"\x00binary",
        "output/execution_metadata.yaml": b"inferences_completed: 2\n",
    }
    ended = Ended(0, b"", files)
    start = OWN["qnn-net-run"].start(one)
    without = OWN["qnn-net-run"].read(start, one, ended)
    assert "could not convert" in without.text
    assert without.raw["output/qnn-profiling-data_0.log"] == b"\x00binary"
    assert without.metrics.others["inferences"] == Measure(2)
    viewer = tmp_path / "bin" / "x86_64-linux-clang" / "qnn-profile-viewer"
    viewer.parent.mkdir(parents=True)
    viewer.write_text(f'#!/bin/sh\n[ "$1" = --input_log ] && cp {DATA}/ctx_basic.csv "$4"\n')
    viewer.chmod(viewer.stat().st_mode | stat.S_IXUSR)
    seen = OWN["qnn-net-run"].read(start, replace(one, runtime_root=tmp_path), ended)
    assert seen.metrics.others["load_us"] == Measure(13995, "us")
    assert seen.metrics.source["QNN (load binary) time"] == Measure(13995, "US")
    assert seen.raw["profile.csv"] == (DATA / "ctx_basic.csv").read_bytes()
    viewer.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    broken = OWN["qnn-net-run"].read(start, replace(one, runtime_root=tmp_path), ended)
    assert "did not write a file: broken" in broken.text
    nothing = {"output/execution_metadata.yaml": b"inferences_completed: 0\n"}
    assert OWN["qnn-net-run"].read(start, one, Ended(0, b"", nothing)).problems == (
        "cut: qnn-net-run ended before it finished its first inference",
    )


OBSERVED = {
    "prompt_tokens": 20,
    "generated_tokens": 100,
    "model_load_start_ms": 1000,
    "model_load_end_ms": 1500,
    "inference_start_ms": 2000,
    "inference_end_ms": 4100,
    "prompt_eval_end_ms": 2100,
    "first_token_ms": 2120,
    "aggregate_sampling_time_ms": 1,
    "SCALING_FACTOR_UNITS_PER_SECOND": 1000,
}


def test_executorch_llama_runner() -> None:
    program = Path("/x/qnn_llama_runner")
    options = {"decoder_model_version": "llama3", "eval_mode": 1, "seq_len": 256}
    one = kit("executorch", ("m.pte", "tokenizer.bin"), spec(program=program, options=options))
    start = OWN["executorch"].start(one)
    assert start.argv[:3] == ("sh", "-c", 'mkdir -p "$1" && shift && exec "$@"')
    assert after(start.argv, "--prompt") == "hello"
    assert after(start.argv, "--seq_len") == "256"
    assert after(start.argv, "--tokenizer_path") == "tokenizer.bin"
    said = f"I 00:00 x\nPyTorchObserver {json.dumps(OBSERVED)}\n".encode()
    files = {"outputs.txt": b"a story\n", "inference_speed.txt": b"50.0"}
    found = OWN["executorch"].read(start, one, Ended(0, said, files))
    metrics = found.metrics
    assert (found.text, found.problems) == ("a story", ())
    assert (metrics.prompt_tokens, metrics.generated_tokens) == (20, 100)
    assert (metrics.init_ms, metrics.ttft_ms) == (500, 120)
    assert (metrics.prompt_tps, metrics.decode_tps) == (200, 50)
    assert metrics.others["inference_tps"] == Measure(50, "tok/s")


def test_executorch_executor_runner_brings_its_etdump() -> None:
    one = kit(
        "executorch",
        ("m.pte", "input_list.txt"),
        spec(program=Path("/x/qnn_executor_runner"), options={"iterations": 5}),
    )
    start = OWN["executorch"].start(one)
    assert after(start.argv, "--input_list_path") == "input_list.txt"
    assert after(start.argv, "--iteration") == "5"
    assert "etdump.etdp" in start.collect
    found = OWN["executorch"].read(start, one, Ended(0, b"", {"etdump.etdp": b"\x00e"}))
    assert found.problems == ()
    assert found.raw["etdump.etdp"] == b"\x00e"
    assert OWN["executorch"].read(start, one, Ended(0, b"")).problems[0].startswith("cut")


@pytest.mark.parametrize(("level", "marks"), [(None, ()), (0, ()), (1, ("profiled",))])
def test_executorch_profiles_at_run_time_and_says_so(
    level: int | None, marks: tuple[str, ...]
) -> None:
    """qnn_executor_runner takes 0 to 2; level 1 was seen to take 22 ms where it took 1.8."""
    options = {} if level is None else {"profile_level": level}
    run = spec(program=Path("/x/qnn_executor_runner"), options=options)
    one = kit("executorch", ("m.pte", "input_list.txt"), run)
    start = OWN["executorch"].start(one)
    asked = [after(start.argv, "--profile_level")] if "--profile_level" in start.argv else []
    assert asked == ([] if level is None else [str(level)])
    assert start.marks == marks
    health = OWN["executorch"].health(one, 9)
    assert health is not None
    assert "--profile_level" not in health.argv, "a probe is no measurement"
    with pytest.raises(InputError, match="profile_level"):
        OWN["executorch"].check(spec(program=Path("/x/r"), options={"profile_level": 3}))
    OWN["executorch"].check(run)
    if level is not None:
        with pytest.raises(InputError, match="qnn_llama_runner does not support"):
            OWN["executorch"].check(replace(run, program=Path("/x/qnn_llama_runner")))


LLAMA = Path(__file__).parent / "data" / "llama.cpp"  # what the real programs printed


def llama(program: str, **options: Any) -> Kit:
    return kit("llama.cpp", ("m.gguf",), spec(program=Path(f"/x/{program}"), options=options))


def test_llama_cpp_has_one_folder_for_both_kinds_of_libraries_and_no_qairt() -> None:
    one = llama("llama-bench", prompt_tokens=512, env={"GGML_HEXAGON_NDEV": "2"})
    start = OWN["llama.cpp"].start(one)
    assert after(start.argv, "-o") == "json"
    assert after(start.argv, "-p") == "512"
    assert start.env["GGML_HEXAGON_NDEV"] == "2"
    assert OWN["llama.cpp"].layout.lib == OWN["llama.cpp"].layout.dsp == "lib"
    assert OWN["llama.cpp"].runtime is None
    with pytest.raises(InputError, match="sets LD_PRELOAD"):
        OWN["llama.cpp"].check(llama("llama-bench", env={"LD_PRELOAD": "x"}).run)


@pytest.fixture
def net_folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for name in ("net.bin", "in/0.raw", "in/1.raw"):
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("#out\nx:=in/0.raw\n\n", "#out\nx:=in/0.raw\n"),
        ("in/0.raw y:=./in/1.raw\n", "in/0.raw y:=in/1.raw\n"),
        ("in\\0.raw\n/data/local/tmp/in/1.raw", "in/0.raw\nin/1.raw\n"),
    ],
)
def test_qnn_net_run_takes_a_list_file_of_the_bundle(
    net_folder: Path, lines: str, text: str
) -> None:
    (net_folder / "input_list.txt").write_text(lines)
    for options in ({"inputs": "input_list.txt"}, {}):
        one = Kit(inspect_bundle(net_folder, kind="qnn"), spec(options=options), has_tool=True)
        OWN["qnn-net-run"].check(one.run)
        assert OWN["qnn-net-run"].start(one).config == text
    (net_folder / "in/0.raw").unlink()
    one = Kit(inspect_bundle(net_folder, kind="qnn"), spec(options={}), has_tool=True)
    with pytest.raises(InputError, match=r"input_list\.txt names the input .*0\.raw, but"):
        OWN["qnn-net-run"].start(one)


def test_what_composes_a_graph_goes_along(net_folder: Path) -> None:
    runner = OWN["qnn-net-run"]
    assert isinstance(runner, Defaults)
    run = spec(options={"inputs": [["in/0.raw"]]})
    assert runner.features(inspect_bundle(net_folder, kind="qnn"), run) == ()
    (net_folder / "net.bin").rename(net_folder / "net.dlc")
    assert runner.features(inspect_bundle(net_folder, kind="qnn"), run) == ("dlc",)
    (net_folder / "net.dlc").rename(net_folder / "libnet.so")
    assert runner.features(inspect_bundle(net_folder, kind="qnn"), run) == ("model-library",)


def gguf(program: str, *names: str, **options: Any) -> Kit:
    run = spec(program=Path(f"/x/{program}"), options=options, prompt="hi")
    return kit("llama.cpp", names, run)


def test_a_projector_and_parts_are_no_models_of_their_own() -> None:
    runner = OWN["llama.cpp"]
    pair = gguf(
        "llama-mtmd-cli", "mmproj-model-f16.gguf", "model-Q4_0.gguf", "a.png", image="a.png"
    )
    runner.check(pair.run)
    start = runner.start(pair)
    assert after(start.argv, "-m") == "model-Q4_0.gguf"
    assert after(start.argv, "--mmproj") == "mmproj-model-f16.gguf"
    assert after(start.argv, "--image") == "a.png"
    names = [f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert after(runner.start(gguf("llama-bench", *names)).argv, "-m") == names[0]


def test_a_program_is_judged_by_its_name() -> None:
    runner = OWN["llama.cpp"]
    with pytest.raises(InputError, match=r"cannot read the output of the program llama-server"):
        runner.check(gguf("llama-server").run)
    pair = gguf("llama-mtmd-cli", "mmproj.gguf", "model.gguf")
    (problem,) = runner.read(runner.start(pair), pair, Ended(0, b"")).problems
    assert problem.startswith("cut: llama-mtmd-cli ended without the times")
    assert "25504" not in problem
    one = gguf("llama-perplexity", "model.gguf")
    runner.check(one.run)
    start = runner.start(one)
    assert start.argv[start.argv.index("-f") + 1] == "{work}/prompt.txt"
    log = f"0.00.001 I Final estimate: PPL = 9.5 +/- 0.1\n{ESTIMATE}\n".encode()
    numbers = runner.read(start, one, Ended(0, b"", {"llama.log": log})).metrics.others
    assert numbers == {"perplexity": Measure(9.5)}


def test_exec_has_an_environment_and_every_kind() -> None:
    options = {"argv": ["true"], "env": {"LEVEL": "{release}/x", "OUT": "{program}"}}
    one = kit("litert", ("a.tflite",), spec(program=Path("/x/tool"), options=options))
    OWN["exec"].check(one.run)
    assert OWN["exec"].start(one).env == {"LEVEL": "{release}/x", "OUT": "{release}/bin/tool"}
    assert set(OWN["exec"].kinds) == set(KINDS)
    with pytest.raises(InputError, match="sets LD_LIBRARY_PATH"):
        OWN["exec"].check(spec(options={"argv": ["a"], "env": {"LD_LIBRARY_PATH": "."}}))


@pytest.mark.parametrize(
    ("content", "options", "uses"),
    [
        (b"#!/bin/sh\ntrue\n", {}, False),
        (b"\x7fELF dlopen libQnnHtp.so", {}, True),
        (b"#!/bin/sh\n", {"argv": ["{program}", "{release}/lib/libQnnHtp.so"]}, True),
        (None, {"argv": ["python3", "x.py"]}, True),
    ],
)
def test_a_program_that_needs_no_qairt(
    tmp_path: Path, content: bytes | None, options: dict[str, Any], uses: bool
) -> None:
    program = None
    if content is not None:
        program = tmp_path / "tool"
        program.write_bytes(content)
    assert uses_qairt(spec(program=program, options=options)) is uses


PARSE = [
    {"metric": "decode_tps", "unit": "tok/s", "regex": r"rate: ([\d.]+)"},
    {"metric": "peak", "unit": "MB", "json": "memory.0.peak", "file": "out.json"},
    {"metric": "rare", "regex": r"rare: (\d+)", "required": False},
]


def test_exec_reads_what_is_declared() -> None:
    options = {
        "parse": PARSE,
        "collect": ["out.json"],
        "argv": ["{program}", "-o", "{work}/out.json"],
    }
    one = kit("files", ("a",), spec(program=Path("/x/tool"), options=options))
    OWN["exec"].check(one.run)
    start = OWN["exec"].start(one)
    assert start.argv == ("{release}/bin/tool", "-o", "{work}/out.json")
    assert OWN["exec"].health(one, 5) is None
    files = {"out.json": b'{"memory": [{"peak": 7}]}'}
    found = OWN["exec"].read(start, one, Ended(0, b"rate: 12.5\n", files))
    assert found.problems == ()
    assert found.metrics.decode_tps == 12.5
    assert found.metrics.others == {"peak": Measure(7, "MB")}
    missing = OWN["exec"].read(start, one, Ended(0, b"", files))
    assert missing.problems == ("unreadable: stdout does not contain decode_tps",)


@pytest.mark.parametrize(
    "options",
    [
        {"parse": [{"metric": "a", "regex": "no group"}]},
        {"parse": [{"metric": "a", "regex": "("}]},
        {"parse": [{"metric": "A b", "regex": "(x)"}]},
        {"collect": ["../../etc/passwd"]},
        {"collect": ["/etc/passwd"]},
        {"collect": ["a b"]},
        {"collect": ["$(id)"]},
        {"stdin": "file"},
        {"argv": "not a list"},
    ],
)
def test_exec_refuses(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        OWN["exec"].check(spec(program=Path("/x"), options=options))


def test_exec_needs_something_to_start() -> None:
    with pytest.raises(InputError, match=r"needs `program:`"):
        OWN["exec"].check(spec())


KITS: dict[str, Kit] = {
    "mllm": kit("mllm", MLLM, spec(program=Path("/x/r"))),
    "qnn-net-run": kit("qnn", NET_FILES, spec(options=NET)),
    "executorch": kit("executorch", ("m.pte", "tokenizer"), spec(program=Path("/x/qnn_llama"))),
    "llama.cpp": llama("llama-bench"),
    "exec": kit("files", ("a",), spec(program=Path("/x"), options={"parse": PARSE})),
}


@pytest.mark.parametrize("name", KITS)
@given(data=st.data())
def test_no_output_makes_a_reader_raise(name: str, data: st.DataObject) -> None:
    one = KITS[name]
    start = OWN[name].start(one)
    bytes_ = st.binary(max_size=200) | st.sampled_from(
        [
            (LLAMA / "bench_none.stdout.txt").read_bytes(),
            (LLAMA / "completion_lv4.stderr.txt").read_bytes(),
            b'PyTorchObserver {"a": 1}',
            b"[1, 2",
            b"[{}]",
        ]
    )
    files = data.draw(
        st.dictionaries(
            st.sampled_from(
                [
                    "out.json",
                    "outputs.txt",
                    "inference_speed.txt",
                    "output/qnn-profiling-data_0.log",
                ]
            ),
            bytes_,
        )
    )
    ended = Ended(data.draw(st.integers(0, 255)), data.draw(bytes_), files, data.draw(bytes_))
    found = OWN[name].read(start, one, ended)
    assert found.problems or ended.status == 0


@pytest.mark.parametrize("name", OWN)
def test_every_runner_has_the_whole_interface(name: str) -> None:
    found = runner(name)
    assert found.name == name
    assert found.kinds
    methods: tuple[Callable[..., object], ...] = (
        found.check, found.files, found.health, found.start, found.read,
    )  # fmt: skip
    assert all(callable(one) for one in methods)


@pytest.mark.parametrize(
    ("name", "windows", "place"),
    [("genie", False, "lib/"), ("genie", True, ""), ("qnn-net-run", False, "lib/")],
)
def test_what_the_sdks_program_is_linked_with_goes_along(
    tmp_path: Path, name: str, place: str, *, windows: bool
) -> None:
    """But a program of one's own has no place there."""
    library = tmp_path / "libpython3.10.so.1.0"
    library.write_bytes(b"x")
    options = NET if name == "qnn-net-run" else {}
    run = spec(libraries=(library,), options=options)
    OWN[name].check(run)
    one = kit("genie", (), run, has_tool=True, windows=windows)
    assert f"{place}{library.name}" in [item.name for item in OWN[name].files(one)]
    with pytest.raises(InputError, match="always uses the program of the runtime"):
        OWN[name].check(replace(run, program=tmp_path / "mine"))
