"""Logs of healthy runs and of other software: no cause, whatever words they use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.data import load
from fleet.profiles.formats.llama_cpp import elsewhere
from fleet.triage.triage import ALARM, triage

from .measuring import DATA, cases

INNOCENT = [
    *(DATA / "innocent.txt").read_text("utf-8").splitlines(),
    *json.loads((DATA / "innocent_logs.json").read_text("utf-8")),
]
UNSEEN = ("unseen1.jsonl", "unseen2.jsonl")
FILES = sorted((DATA / "healthy").iterdir())
# Written from what such programs print; each has words that other logs use for failures.
TEXTS = {
    "genie": 'Using libGenie.so version 1.17.0\n\n[INFO]  "Using create From Binary"\n'
    '[INFO]  "Allocated total size = 323453440 across 10 buffers"\n[PROMPT]: hi\n'
    "[BEGIN]: Hello! How can I help you today?[END]\n",
    "validator": "PF_VALIDATOR: DEBUG: Calling PlatformValidator->setBackend\n"
    "Backend DSP Prerequisites: Present.\nLibrary Version: Not Queried\nCore Version: Not Queried\n"
    "Unit Test: Passed.\nQNN is supported for backend DSP on the device.\n"
    "Error in saving the results\n",
    "benign": "rpcmem_android.c:177: rpcmem_init: dummy call to rpcmem_init, rpcmem APIs will be "
    "used from libxdsprpc\nCouldn't find file cdsprpcd.farf, errno (No such file or directory)\n"
    "<W> Function not called, PrepareLib isn't loaded!\nget_lib_name failed for uri ITRANSPORT\n"
    'openat(AT_FDCWD, "/usr/lib/rfsa/adsp/cdsp/testsig.so", O_RDONLY) = -1 ENOENT\n'
    "DSP_LIBRARY_PATH not found for machine [x] path [y]\n",
    "kernel": "remoteproc remoteproc1: powering up cdsp\n"
    "remoteproc remoteproc1: Booting fw image qcom/sa8775p/cdsp0.mbn, size 5126500\n"
    "remoteproc remoteproc1: remote processor cdsp is now up\n"
    "qcom,fastrpc 26300000.remoteproc:glink-edge.fastrpcglink-apps-dsp.-1.-1: adding compute-cb\n",
    "adb": "* daemon not running; starting now at tcp:5037\n* daemon started successfully\n"
    "List of devices attached\nR5CX10ABCDE            device product:e3q model:SM_S928B\n"
    "a.so: 1 file pushed, 0 skipped. 330.5 MB/s (4937112 bytes in 0.014s)\n",
    "systemd": "* cdsprpcd.service - cdsprpcd aDSP RPC daemon\n     Loaded: loaded\n"
    "     Active: active (running) since Fri 2026-11-20 20:14:02 UTC; 3h ago\n",
    "docker": "Unable to find image 'alpine:latest' locally\nlatest: Pulling from library/alpine\n"
    "Digest: sha256:0123\nStatus: Downloaded newer image for alpine:latest\n",
    "npm": "npm warn deprecated inflight@1.0.6: this module leaks memory\n"
    "added 120 packages in 4s\nfound 0 vulnerabilities\n",
    "cmake": "-- Looking for pthread.h - not found\n-- Could NOT find Doxygen (missing: "
    "DOXYGEN_EXECUTABLE)\n-- Configuring done\nmake: *** No rule to make target 'x'.  Stop.\n",
    "java": 'Exception in thread "main" java.lang.NullPointerException\n\tat a.b.C.main(C.java)\n',
    "nginx": "2026/11/20 10:00:00 [error] 7#7: *1 connect() failed (111: Connection refused) while "
    "connecting to upstream\n",
    "sql": 'ERROR:  relation "devices" does not exist at character 15\n',
    "cuda": "CUDA error: out of range at line 14\ntorch.cuda.CudaError: invalid argument (1)\n",
    "empty": "",
    "words": "The device is healthy. Nothing failed. Error count: 0, warnings: 0.\n",
}  # fmt: skip


# Recorded runs that say themselves that they went well; of the others nothing is known.
WENT_WELL = {"genie-t2t-run", "executorch-runner", "litert-benchmark", "pip"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_log_raises_no_alarm(path: Path) -> None:
    found = triage(path.read_text("utf-8", "replace"))
    if path.stem == "python-traceback":  # a failure, but not of a device
        assert found.causes[0].confidence < ALARM
        return
    assert found.causes == ()
    well = path.stem in WENT_WELL or path.stem.startswith("session-")
    assert found.verdict == ("healthy" if well else "not-recognised"), found.notes


@pytest.mark.parametrize("case", ["none-kernel1149-pass", "none-et3528-noise"])
def test_a_reported_run_that_went_well_says_so(case: str) -> None:
    (row,) = [row for name in UNSEEN for row in cases(name) if row["id"] == case]
    assert triage(row["log"]).verdict == "healthy"


@pytest.mark.parametrize("path", [path for path in FILES if path.stem in WENT_WELL])
def test_success_beside_an_unknown_failure_is_no_success(path: Path) -> None:
    log = path.read_text("utf-8") + "could not load model: error -42\n"
    assert triage(log).verdict != "healthy"


@pytest.mark.parametrize(
    "line",
    [
        "GGML_ASSERT(x)",
        "status 139",
        "exit code 1",
        "Process exited with code -6",
        "libc++abi: terminating",
        "Terminated",
        "the program crashed",
        "connection timeout",
        "E QNN: 14001",
        "11-20 10:00:00.123  7  7 E QnnDsp  : 14001",
        "SIGABRT",
    ],
)
def test_success_beside_a_word_of_failure_is_no_success(line: str) -> None:
    answer = (DATA / "healthy" / "genie-t2t-run.log").read_text("utf-8")
    assert triage(f"{answer}{line}\n").verdict != "healthy"


@pytest.mark.parametrize("line", ["exit code 0", "status 0", "HTTP status 200", "timeout: 30 s"])
def test_a_status_of_success_is_no_word_of_failure(line: str) -> None:
    answer = (DATA / "healthy" / "genie-t2t-run.log").read_text("utf-8")
    assert triage(f"{answer}{line}\n").verdict == "healthy"


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        ("prompt [end] of the list\n", "not-recognised"),
        ("the [END] token is 2\n", "not-recognised"),
        ("[BEGIN]: one\ntwo[END]\nPrompt processing: 1 us\n", "healthy"),
        ("stdout: [BEGIN]: Hello![END] (0.2 s)\n", "healthy"),
    ],
)
def test_the_end_of_an_answer_is_no_word_in_brackets(log: str, verdict: str) -> None:
    assert triage(log).verdict == verdict


LLAMA = Path(__file__).parents[1] / "runners" / "data" / "llama.cpp"


@pytest.mark.parametrize("beside", ["", "ggml-hex: Hexagon Arch version v73\n"])
def test_weights_on_the_cpu_are_a_fallback_as_the_runner_says(beside: str) -> None:
    """The line of the Hexagon backend comes with `--device none` too."""
    log = beside + (LLAMA / "completion_lv4.stderr.txt").read_text("utf-8")
    found = triage(log, of_device=True)
    assert found.verdict == "problem"
    assert found.causes[0].cause.id == "silent-cpu-fallback"
    assert elsewhere(log)


@pytest.mark.parametrize("name", ["HTP0", "HTP1-REPACK"])
def test_weights_on_the_npu_are_none_beside_those_on_the_cpu(name: str) -> None:
    """The embedding stays on the CPU (innocent_logs.json, docs/backend/snapdragon of llama.cpp)."""
    log = (LLAMA / "completion_lv4.stderr.txt").read_text("utf-8")
    found = triage(log + f"load_tensors:  {name} model buffer size =   504.00 MiB\n")
    assert (found.verdict, found.causes) == ("healthy", ())


def test_a_run_that_does_not_say_where_it_ran_is_not_healthy() -> None:
    """llama.cpp below `-lv 4` names no buffer: it may have run on the CPU."""
    log = "common_perf_print: eval time = 14988 ms / 108 runs ( 138 ms, 17.21 tokens per second)\n"
    assert triage(log).verdict == "not-recognised"
    placed = log + "load_tensors:  HTP0 model buffer size =   504.00 MiB\n"
    assert triage(placed).verdict == "healthy"


@pytest.mark.parametrize("log", ["could not load model: error -42\n", "", "all is well\n", "x"])
def test_a_log_of_which_nothing_is_known_is_not_recognised(log: str) -> None:
    found = triage(log)
    assert (found.verdict, found.causes) == ("not-recognised", ())
    assert found.notes


@pytest.mark.parametrize("name", TEXTS)
def test_other_words_have_no_cause(name: str) -> None:
    found = triage(TEXTS[name])
    assert found.causes == (), [(one.cause.id, one.evidence[0].text) for one in found.causes]
    assert found.notes


def test_an_innocent_line_raises_no_alarm() -> None:
    """Lines of builds, kernels, package managers and healthy runs that use the same words."""
    assert len(INNOCENT) >= 200
    blamed = {
        line: [(one.cause.id, one.confidence) for one in found.causes]
        for line in INNOCENT
        if (found := triage(line)).causes
    }
    assert {line: causes for line, causes in blamed.items() if causes[0][1] >= ALARM} == {}
    assert len(blamed) < 0.1 * len(INNOCENT), "most have none at all"


def test_there_are_enough_of_them() -> None:
    assert len(FILES) + len(TEXTS) >= 30


def test_benign_patterns_have_a_source() -> None:
    assert all(one["match"] and one["source"] for one in load("benign")["patterns"])
    assert all(one["match"] and one["source"] for one in load("success")["patterns"])


def test_benign_lines_hide_no_cause_beside_them() -> None:
    log = TEXTS["benign"] + "<E> Skel lib id mismatch: expected (v2.51.0.1), detected (v2.47.0.1)\n"
    assert triage(log).causes[0].cause.id == "stub-skel-version-mismatch"


@pytest.mark.parametrize(
    "log",
    [
        "Segmentation fault\n",
        "Segmentation fault (core dumped)\n",
        "$ genie-t2t-run -c genie_config.json\nSegmentation fault (core dumped)\n",
        "[INFO] QnnDsp <V> Creating default router\nProcess exited with code 139\n",
    ],
)
def test_a_crash_without_a_result_is_not_after_the_work(log: str) -> None:
    """Nothing shows that the work was done, so nobody is told to take the result as valid."""
    found = triage(log)
    assert "teardown-crash" not in [one.cause.id for one in found.causes]
    assert found.verdict != "healthy"


@pytest.mark.parametrize("line", ["the [END] token is 2", "prompt [end] of the list"])
def test_a_word_in_brackets_is_no_answer(line: str) -> None:
    found = triage(f"{line}\nSegmentation fault (core dumped)\n")
    assert "teardown-crash" not in [one.cause.id for one in found.causes]


def test_a_crash_behind_the_answer_is_after_the_work() -> None:
    answer = (DATA / "healthy" / "genie-t2t-run.log").read_text("utf-8")
    found = triage(answer + "Segmentation fault (core dumped)\n")
    assert found.causes[0].cause.id == "teardown-crash"


@pytest.mark.parametrize(
    "log", ["worker-07   offline\n", "NODE      STATE\ncompute-12   offline   drained for repair\n"]
)
def test_offline_is_a_phone_only_in_the_list_of_adb(log: str) -> None:
    assert "adb-offline" not in [one.cause.id for one in triage(log).causes]
    listed = triage("List of devices attached\nR5CX10ABCDE\toffline\n").causes
    assert listed[0].cause.id == "adb-offline"


WORKED = json.loads((DATA / "worked.json").read_text("utf-8"))


@pytest.mark.parametrize("name", WORKED)
def test_a_run_that_worked_is_called_so_with_what_was_seen(name: str) -> None:
    """Written after what each program of the field prints; a failure beside it is none of it."""
    found = triage(WORKED[name])
    assert (found.verdict, found.causes) == ("healthy", ()), found.notes
    assert found.notes[0].startswith("the log shows that this worked: line ")
    failed = triage(WORKED[name] + "\nQNN HTP: could not load model: error -42\n")
    assert failed.verdict != "healthy"


@pytest.mark.parametrize(
    "log",
    [
        "QNN HTP\ninference 3100 ms on CPU\n",
        "QNN HTP: 0 FPS\n",
        "qnn: Finished Executing Graphs\noutput all zeros\n",
        "llama.cpp on Snapdragon X: 51.1 tokens per second, NPU idle, cpu fallback\n",
        "QNN HTP\nprogram ended with exit code 0x1\n",
    ],
)
def test_a_result_that_may_be_slow_or_wrong_is_not_called_healthy(log: str) -> None:
    assert triage(log).verdict != "healthy"


def test_a_service_that_starts_again_ends_no_error() -> None:
    """A weak success says that a step was done, not that the error before it is over."""
    chain = "qnn htp: libQnnHtpV75Skel.so not found\n<E> qnn_open failed, 0x80000406\n"
    log = chain + "Nov 12 10:00:01 pi systemd[1]: Started npu.service - NPU.\n"
    assert triage(log).causes[0].cause.id == "skel-not-found"


@pytest.mark.parametrize("log", ["total 12\n-rw-r--r-- 1 root root 9 a.so\n", "[a.b]: [SM8650]\n"])
def test_a_harmless_log_is_said_to_show_no_failure(log: str) -> None:
    found = triage(log)
    assert found.verdict == "not-recognised"
    assert found.notes[0].startswith("no line of this log shows a failure")
