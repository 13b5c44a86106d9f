"""Whose log it is: what any machine can have is a cause only where the log is of a device."""

from __future__ import annotations

import pytest

from fleet.triage.knowledge import knowledge
from fleet.triage.triage import triage

# Own wording of what such machines print; the cause is the one that the line has on a board.
ANYWHERE = {
    "jetson-apt": (("nvidia@jetson:~$ sudo apt-get install libfoo-dev\nE: Unable to locate package "
                   "libfoo-dev\n"), ""),
    "desktop-apt": (("Err:3 http://ppa.example/ubuntu jammy Release\n  404  Not Found [IP: "
                    "192.0.2.7 80]\nE: The repository 'http://ppa.example/ubuntu jammy Release' "
                    "does not have a Release file.\n"), "package-source"),
    "glibc": (("./solver: /lib/aarch64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found "
              "(required by ./solver)\n"), "glibc-too-old"),
    "pi-glibc": (("pi@raspberrypi:~ $ ./solver\n./solver: /lib/libc.so.6: version "
                 "`GLIBC_2.34' not found (required by ./solver)\n"), ""),
    "server-loader": (("./render: error while loading shared libraries: libGLEW.so.2: cannot open "
                      "shared object file: No such file or directory\n"), "host-lib-missing"),
    "app": (("E AndroidRuntime: FATAL EXCEPTION: main\njava.lang.UnsatisfiedLinkError: dlopen "
            'failed: library "libgame.so" not found\n'), "host-lib-missing"),
    "python": (("Traceback (most recent call last):\n  File 'train.py', line 2, in <module>\n"
               "ModuleNotFoundError: No module named 'einops'\n"), "python-package"),
    "oom": ("[81234.5] Out of memory: Killed process 4711 (clang++) total-vm:9123456kB\n",
            "no-memory"),
    "cpu": ("whisper: no GPU found, falling back to CPU\n", "silent-cpu-fallback"),
    "exec": ("bash: ./tool: cannot execute binary file: Exec format error\n", "abi-mismatch"),
    "env": ("./setup.sh: line 12: FOO: unbound variable\n", "env-script"),
    "adreno": ("I Game: Qualcomm Adreno (TM) 650\nE Game: Failed to load OpenCL library\n",
               "gpu-driver"),
    "router": (("qcom-q6v5-wcss-pil cd00000.q6v5_wcss: fatal error received:\n"
               "remoteproc0: handling crash #1 in cd00000.q6v5_wcss\n"), "dsp-crash-ssr"),
    "workflow": ("Run some/deploy-action@v2\n***@***: Permission denied (publickey).\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ANYWHERE)
def test_a_failure_of_any_machine_is_named_with_a_caveat(name: str) -> None:
    """Whoever pastes a log into the doctor has a board: the gate lowers, it does not silence."""
    log, cause = ANYWHERE[name]
    found = triage(log)
    assert all(one.confidence < 0.5 for one in found.causes)
    assert found.questions
    if cause:
        assert found.causes[0].cause.id == cause
        assert "--platform" in found.notes[-1]
    else:
        assert found.causes == (), "a log of other software"


@pytest.mark.parametrize("name", [name for name, (_, cause) in ANYWHERE.items() if cause])
def test_the_same_lines_of_a_device_have_one(name: str) -> None:
    log, cause = ANYWHERE[name]
    beside = f"root@qcs6490:~# {log}qnn-net-run: exit code 1\n"
    for found in (triage(beside), triage(log, of_device=True), triage(log, platform="linux")):
        assert found.causes[0].cause.id == cause


@pytest.mark.parametrize(
    "log",
    [
        "adb: error: failed to copy '/data/local/tmp/x': remote No space left on device\n",
        "scp: write remote 'models/a.bin': No space left on device\n",
        "ssh: connect to host evk-07 port 22: Connection refused\n",
        "root@evk-07: Permission denied (publickey,password).\n",
        "List of devices attached\nR5CX10ABCDE\toffline\n",
    ],
)
def test_the_way_to_a_device_needs_no_other_word(log: str) -> None:
    assert triage(log).causes


@pytest.mark.parametrize("maker", ["NVIDIA Jetson Orin", "rk3588", "Raspberry Pi 5", "hailo8"])
def test_beside_another_maker_it_is_no_way_to_a_device(maker: str) -> None:
    log = f'{maker}\nscp: write remote "a.bin": No space left on device\n'
    found = triage(log)
    assert not found.causes
    assert "other software" in found.notes[0]
    assert triage(log + "loaded libQnnHtp.so\n").causes, "unless Qualcomm's is there, too"


@pytest.mark.parametrize(
    "log",
    [
        "snpe-onnx-to-dlc -i m.onnx\nModuleNotFoundError: No module named 'onnx'\n",
        "[Qnn ExecuTorch]: QnnBackend_validateOpConfig failed 3110\n",
        "Quantizing the model...\nlibQnnHtp.so: libc++.so.1: cannot open shared object file\n",
    ],
)
def test_what_fails_while_a_model_is_prepared_is_no_deployment(log: str) -> None:
    found = triage(log)
    assert all(one.confidence < 0.5 for one in found.causes)
    assert "not a deployment" in found.notes[0]


SPEED = "load_tensors: HTP0 model buffer size = 504.00 MiB\neval time = 9000 ms / 90 runs ({})\n"


@pytest.mark.parametrize(
    ("line", "healthy"),
    [
        ("100.00 ms per token, 22.50 tokens per second", True),
        ("400.00 ms per token, 2.50 tokens per second", False),
    ],
)
def test_a_run_that_is_only_slow_is_not_called_well(line: str, healthy: bool) -> None:
    found = triage(SPEED.format(line))
    assert not found.causes
    assert (found.verdict == "healthy") is healthy
    if not healthy:
        assert "slow" in found.notes[0]
        assert [one.line for one in found.suspects] == [2]
        assert found.questions


@pytest.mark.parametrize(
    "answer",
    [
        "the the the the the the the the",
        "!!!!!!!!!!!!!!!!!!!!!!!!",
        "this is slower than on the CPU",
        "falling back to the reference kernels on the CPU",
    ],
)
def test_an_answer_without_sense_is_not_called_well(answer: str) -> None:
    assert triage("[BEGIN]: Hello, how are you?[END]\n").verdict == "healthy"
    assert triage(f"[BEGIN]: {answer}[END]\n").verdict != "healthy"


def test_most_causes_of_the_system_ask_whose_log_it_is() -> None:
    """A new cause of these layers has to say where it may be named."""
    layers = {"host", "link", "os", "user"}
    own = {
        "aihub-job-failed",
        "stated-denied",
        "stated-remote",
        "stated-build",
        "container-no-device",
        "kernel-fastrpc-config",
        "windows-driver",
        "group-not-effective",
    }
    asked = {cause.id for cause in knowledge().causes.values() if cause.layer in layers} - own
    assert [name for name in sorted(asked) if not knowledge().causes[name].context] == []
