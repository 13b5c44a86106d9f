"""Runner llama.cpp on what the real programs printed: Debian's llama.cpp 0.7.0 and 0c1e570.

The model is a tiny one of ours on a CPU, so nothing here was seen on an NPU. What differs there is
put in by name: `devices` and `backends` of llama-bench, and the buffers of the weights, as
docs/backend/snapdragon of ggml-org/llama.cpp shows them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.model.errors import InputError
from fleet.model.playbook import RunSpec
from fleet.runners import Ended, Kit, Start
from fleet.runners.registry import OWN

from .kits import kit

DATA = Path(__file__).parent / "data" / "llama.cpp"
RUNNER = OWN["llama.cpp"]
HINT = b"ggml-hex: Hexagon Arch version v73\n"


def data(name: str) -> bytes:
    return (DATA / name).read_bytes()


BENCH_CPU = data("bench_none.stdout.txt")
TEXT, LOG = data("completion_fleet.stdout.txt"), data("completion_fleet.stderr.txt")
LOST = data("debian-sid-0.7.0-completion-lost-output.stderr.txt")
LOG_4 = data("completion_lv4.stderr.txt")
ON_NPU = LOG_4.replace(b"  CPU_Mapped model buffer", b"        HTP0 model buffer")


def of(program: str, prompt: str = "What is fleet?", **options: Any) -> Kit:
    run = RunSpec(prompt=prompt, timeout=30.0, program=Path(f"/x/{program}"), options=options)
    return kit("llama.cpp", ("m.gguf",), run)


def after(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


def bench_on(devices: str, backends: str) -> bytes:
    rows = json.loads(BENCH_CPU)
    return json.dumps([{**row, "devices": devices, "backends": backends} for row in rows]).encode()


@pytest.mark.parametrize(
    ("out", "device", "on_npu"),
    [
        (BENCH_CPU, "HTP0", False),
        (bench_on("HTP0", "OpenCL,HTP"), "HTP0", True),
        (bench_on("HTP0", "CPU"), "HTP0", False),
        (bench_on("none", "OpenCL,HTP"), "HTP0", False),
        (bench_on("GPUOpenCL", "OpenCL,HTP"), "GPUOpenCL", False),
        (bench_on("HTP0/HTP1", "HTP"), "HTP0,HTP1", True),
        (bench_on("HTP0", "HTP"), "HTP0,HTP1", False),
        (bench_on("HTP0", "HTP"), "HTP1", False),
    ],
)
def test_bench_says_itself_where_it_ran(out: bytes, device: str, on_npu: bool) -> None:
    """The line of the Hexagon backend comes with `--device none` too, and proves nothing."""
    one = of("llama-bench", device=device)
    found = RUNNER.read(RUNNER.start(one), one, Ended(0, out, stderr=HINT))
    assert found.metrics.decode_tps is not None
    wanted = [] if on_npu else ["cpu-fallback"]
    assert [text.partition(":")[0] for text in found.problems] == wanted


def test_bench_of_old_says_nothing_and_proves_nothing() -> None:
    rows = [
        {key: value for key, value in row.items() if key not in {"devices", "backends"}}
        for row in json.loads(BENCH_CPU)
    ]
    one = of("llama-bench")
    found = RUNNER.read(RUNNER.start(one), one, Ended(0, json.dumps(rows).encode(), stderr=HINT))
    (problem,) = found.problems
    assert problem.startswith("cpu-fallback: this llama-bench does not print the devices")


def test_several_devices_are_one_test_of_bench_and_a_list_for_completion() -> None:
    """llama-bench takes `--device <dev0/dev1/...>`; a comma there means several tests."""
    assert after(RUNNER.start(of("llama-bench", device="HTP0,HTP1")).argv, "--device") == (
        "HTP0/HTP1"
    )
    assert after(RUNNER.start(of("llama-completion", device="HTP0,HTP1")).argv, "--device") == (
        "HTP0,HTP1"
    )


def test_rates_are_found_behind_lines_with_brackets() -> None:
    """ggml-hex: FASTRPC_GET_DOMAINS[0]: ... comes before the list."""
    one = of("llama-bench")
    out = b"ggml-hex: FASTRPC_GET_DOMAINS[0]: type 1\n" + bench_on("HTP0", "HTP")
    found = RUNNER.read(RUNNER.start(one), one, Ended(0, out))
    assert found.problems == ()
    assert found.metrics.decode_tps == pytest.approx(9001.06, abs=0.01)


def test_completion_prints_what_proves_the_npu_and_no_prompt() -> None:
    """INFO of ggml is level 4 of llama.cpp's log since its levels are new; the default is 3."""
    argv = RUNNER.start(of("llama-completion")).argv
    assert after(argv, "-lv") == "4"
    assert after(argv, "-f") == "{work}/prompt.txt"
    assert (after(argv, "--seed"), after(argv, "--temp")) == ("0", "0")
    assert {"-no-cnv", "--no-display-prompt"} <= set(argv), "asked for where its help names them"
    assert (LOG_4.count(b"model buffer size"), LOG.count(b"model buffer size")) == (1, 0)


def completed(log: bytes, out: bytes = TEXT) -> tuple[Kit, Start, Ended]:
    one = of("llama-completion")
    start = RUNNER.start(one)
    (name,) = start.collect
    return one, start, Ended(0, out, {name: log}, stderr=log)


@pytest.mark.parametrize(
    ("device", "held", "on_npu"),
    [
        ("HTP0", ["HTP0"], True),
        ("HTP0", ["HTP0-REPACK"], True),
        ("HTP0", ["HTP1-REPACK"], False),
        ("HTP0,HTP1", ["HTP1", "HTP1-REPACK", "HTP0-REPACK"], True),
        ("HTP0,HTP1", ["HTP0", "HTP0-REPACK"], False),
        ("HTP1", ["HTP10"], False),
        ("GPUOpenCL", ["HTP0"], False),
    ],
)
def test_completion_is_where_it_was_asked_to_be(device: str, held: list[str], on_npu: bool) -> None:
    lines = [f"load_tensors:  {name} model buffer size =   504.00 MiB\n" for name in held]
    _, start, ended = completed(LOG_4 + "".join(lines).encode())
    one = of("llama-completion", device=device)
    found = RUNNER.read(start, one, ended).problems
    assert [text.partition(":")[0] for text in found] == ([] if on_npu else ["cpu-fallback"])


def test_completion_is_on_the_npu_where_its_weights_are() -> None:
    one, start, ended = completed(ON_NPU)
    found = RUNNER.read(start, one, ended)
    assert found.problems == ()
    metrics = found.metrics
    assert (metrics.init_ms, metrics.prompt_tps, metrics.decode_tps) == (3.01, 20000.0, 8000.0)
    one, start, ended = completed(HINT + LOG_4)
    (problem,) = RUNNER.read(start, one, ended).problems
    assert problem.startswith("cpu-fallback: the log shows no weights on HTP0")
    assert problem.endswith("the weights are on CPU_Mapped"), (
        "whatever the Hexagon backend says of itself"
    )
    one, start, ended = completed(HINT + LOG)
    assert "with `-lv 4`" in RUNNER.read(start, one, ended).problems[0]


def test_output_that_was_lost_with_status_0_is_cut_and_no_fallback() -> None:
    one, start, ended = completed(LOST, b"")
    (problem,) = RUNNER.read(start, one, ended).problems
    assert problem.startswith("cut: llama.cpp lost the end of its output")
    one, start, ended = completed(ON_NPU[: ON_NPU.index(b"common_perf_print:       total time")])
    assert (
        RUNNER.read(start, one, ended)
        .problems[0]
        .startswith("cut: llama.cpp lost the end of its output")
    )


def test_failed_is_said_before_all_else() -> None:
    one, start, ended = completed(b"E input is empty\n", b"")
    assert RUNNER.read(start, one, replace(ended, status=255)).problems == (
        "failed: exit status 255",
    )


PROGRAM = """#!/bin/sh
# Ends without the end of its log the first {losses} times; the last --log-file is the log.
if [ "$1" = --help ]; then
  printf '%s\n' '-cnv,  --conversation, -no-cnv, --no-conversation' '-fa,   --flash-attn [on|off]'
  exit 1
fi
echo "$*" > {folder}/argv
for word; do
  if [ "$before" = --log-file ]; then log=$word; fi
  before=$word
done
echo x >> {folder}/starts
tries=$(wc -l < {folder}/starts)
echo "text $tries"
if [ "$tries" -gt {losses} ]; then cat {folder}/whole; else cat {folder}/lost; fi > "$log"
exit {status}
"""


def ran(folder: Path, losses: int, status: int = 0) -> tuple[Kit, Start, Ended]:
    """The argv of the runner, started by a real shell."""
    one = of("llama-completion", extra=["--log-file", "/not/this/one"])
    start = RUNNER.start(one)
    program, work = folder / "bin" / "llama-completion", folder / "work"
    program.parent.mkdir()
    work.mkdir()
    (folder / "whole").write_bytes(ON_NPU)
    (folder / "lost").write_bytes(LOST)
    program.write_text(PROGRAM.format(folder=folder, losses=losses, status=status))
    program.chmod(0o755)
    argv = [
        word.replace("{work}", str(work)).replace("{release}", str(folder)) for word in start.argv
    ]
    done = subprocess.run(
        argv, capture_output=True, check=False, timeout=60, env={"PATH": os.defpath}
    )
    files = {name: (work / name).read_bytes() for name in start.collect}
    return one, start, Ended(done.returncode, done.stdout, files, done.stderr)


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_lost_output_is_asked_for_again_on_the_device(tmp_path: Path, losses: int) -> None:
    one, start, ended = ran(tmp_path, losses)
    found = RUNNER.read(start, one, ended)
    assert (found.problems, found.text) == ((), f"text {losses + 1}")
    assert ended.stdout.count(b"lost the end of its output") == losses


def test_it_gets_the_options_that_its_help_names(tmp_path: Path) -> None:
    """Those of llama.cpp's own script for HTP among them; what the playbook says comes last."""
    ran(tmp_path, losses=0)
    argv = (tmp_path / "argv").read_text().split()
    assert argv[:4] == ["-no-cnv", "-fa", "on", "-m"]
    assert not {"--no-display-prompt", "--ubatch-size"} & set(argv)
    start = RUNNER.start(of("llama-completion", device="HTP0,HTP1"))
    assert start.env["GGML_HEXAGON_DEVICES"] == "HTP0,HTP1"
    assert start.env["GGML_HEXAGON_NDEV"] == "2"
    bench = RUNNER.start(of("llama-bench", extra=["-ub", "64"]))
    assert "--ubatch-size" not in bench.argv
    assert after(RUNNER.start(of("llama-bench")).argv, "--ubatch-size") == "1024"
    cpu = RUNNER.start(of("llama-completion", device="none"))
    assert (dict(cpu.env), "-fa on" in cpu.argv) == ({}, False)


def test_it_is_asked_five_times_and_then_said(tmp_path: Path) -> None:
    one, start, ended = ran(tmp_path, losses=99)
    assert (tmp_path / "starts").read_text() == "x\n" * 5
    assert (
        RUNNER.read(start, one, ended)
        .problems[0]
        .startswith("cut: llama.cpp lost the end of its output")
    )


def test_a_failure_is_not_asked_again(tmp_path: Path) -> None:
    _, _, ended = ran(tmp_path, losses=99, status=3)
    assert ended.status == 3
    assert (tmp_path / "starts").read_text() == "x\n"


def test_who_ends_the_shell_ends_the_program(tmp_path: Path) -> None:
    """Where a device has no setsid, only the shell is told that the time is over."""
    start = RUNNER.start(of("llama-completion"))
    program = tmp_path / "bin" / "llama-completion"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\n[ $1 = --help ] && exit\n"
        f"echo $$ > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pid\nexec sleep 1000\n"
    )
    program.chmod(0o755)
    argv = [word.replace("{release}", str(tmp_path)) for word in start.argv]
    shell = subprocess.Popen(argv, env={"PATH": os.defpath})
    try:
        assert seen((tmp_path / "pid").exists)
        shell.terminate()
        assert shell.wait(timeout=60) != 0
    finally:
        shell.kill()
        shell.wait()
    status = Path("/proc", (tmp_path / "pid").read_text().strip(), "status")
    assert seen(lambda: over(status))


def over(status: Path) -> bool:
    """Ended, be it that nobody has asked for its status yet."""
    try:
        return "State:\tZ" in status.read_text()
    except OSError:
        return True


def seen(what: Callable[[], bool], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while not what() and time.monotonic() < until:
        time.sleep(0.02)
    return what()


def test_the_chat_is_refused_with_the_program_that_measures() -> None:
    assert b"invalid argument: -no-cnv" in data("cli_fleet.stderr.txt")
    with pytest.raises(InputError, match="llama-cli is an interactive chat") as caught:
        RUNNER.check(of("llama-cli").run)
    assert "llama-completion" in caught.value.hint
    RUNNER.check(of("llama-completion").run)
    RUNNER.check(of("llama-bench", prompt="").run)


def test_completion_needs_a_prompt_and_its_probe_has_one_of_its_own() -> None:
    with pytest.raises(InputError, match="needs a prompt"):
        RUNNER.check(of("llama-completion", prompt="").run)
    health = RUNNER.health(of("llama-completion", prompt="long " * 1000), 9.0)
    assert health is not None
    assert (health.prompt, after(health.argv, "-n")) == (b"hi", "1")
