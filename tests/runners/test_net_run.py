"""qnn-net-run's script on the device, with programs that leave what the real ones left.

The words of the backend extensions are those of SDK 2.25 on the emulator of QAIRT 2.51.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.device.texts import path_of
from fleet.model.errors import InputError
from fleet.runners import Ended
from fleet.runners.qnn_net_run import NetRunRunner
from tests import needs

from .kits import kit
from .test_others import NET, NET_FILES, spec

VIEWED = Path(__file__).parents[1] / "profiles" / "real" / "viewer"
RUNNER = NetRunRunner()
KIT = kit("qnn", NET_FILES, spec(options=NET), has_tool=True)
WARP = b"0.2ms [ ERROR ] Invalid perf_profile warp passed, Setting perf_profile to high_performance"
UNKNOWN = b"0.2ms [ ERROR ] Unknown Key: devices/0/cores/0/perf_profile"
FILES = ("profile.json", "profile.csv")
LOG = {"output/qnn-profiling-data_0.log": b"\x00binary"}
SET = b"    12.4ms [  INFO ] Perf Infra set power config return: [0]\n"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Programs that write the real outputs of `detailed`, and a link as the real one leaves it."""
    folder = tmp_path / "release"
    for name in ("bin", "lib", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "lib" / "libQnnJsonProfilingReader.so").touch()
    net_run = folder / "bin" / "qnn-net-run"
    net_run.write_text(
        "#!/bin/sh\nfor word; do case $last in --output_dir) out=$word ;; esac; last=$word; done\n"
        'echo "$@" > "${out%/output}/argv"; mkdir -p "$out"\n'
        'echo log > "$out/qnn-profiling-data_0.log"\n'
        'ln -s qnn-profiling-data_0.log "$out/qnn-profiling-data.log"\nexit 7\n'
    )
    viewer = folder / "bin" / "qnn-profile-viewer"
    viewer.write_text(
        "#!/bin/sh\ncase $1 in\n"
        f'--reader) [ -f "$2" ] && [ ! -L "$4" ] && cp {VIEWED}/detailed.json "$6" ;;\n'
        f'--input_log) [ ! -L "$2" ] && cp {VIEWED}/detailed.csv "$4" ;;\nesac\n'
    )
    for program in (net_run, viewer):
        program.chmod(0o755)
    return folder


def run(release: Path, shell: list[str]) -> subprocess.CompletedProcess[bytes]:
    start = RUNNER.start(KIT)
    words = [
        word.replace("{release}", str(release)).replace("{work}", str(release / "work"))
        for word in start.argv[2:]
    ]
    return subprocess.run(
        [*shell, str(path_of("net_run.sh")), *words], capture_output=True, check=False
    )


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "mksh"])
def test_the_viewer_of_the_device_reads_the_log_there(release: Path, shell: str) -> None:
    found = needs.tool(shell)
    done = run(release, [found, "sh"] if shell == "busybox" else [found])
    work = release / "work"
    assert (done.returncode, done.stderr) == (7, b""), "its status is that of qnn-net-run"
    assert (work / "profile.json").read_bytes() == (VIEWED / "detailed.json").read_bytes()
    assert (work / "profile.csv").read_bytes() == (VIEWED / "detailed.csv").read_bytes()
    told = json.loads((work / "backend.json").read_text())["backend_extensions"]
    assert told["shared_library_path"] == f"{release}/lib/libQnnHtpNetRunExtensions.so"
    set_up = json.loads(Path(told["config_file_path"]).read_text())
    assert set_up == {"devices": [{"cores": [{"perf_profile": "burst"}]}]}
    assert (work / "argv").read_text().endswith(f"--config_file {work}/backend.json\n")


def test_a_device_without_a_viewer_keeps_the_log(release: Path) -> None:
    (release / "bin" / "qnn-profile-viewer").unlink()
    assert run(release, ["sh"]).returncode == 7
    assert not (release / "work" / "viewer.txt").exists()


def test_what_the_device_read_needs_no_viewer_here() -> None:
    files = {name: (VIEWED / f"detailed{Path(name).suffix}").read_bytes() for name in FILES}
    seen = RUNNER.read(RUNNER.start(KIT), KIT, Ended(0, b"", {**LOG, **files}))
    assert [op.name for op in seen.ops] == ["Input", "Relu1", "Add1", "Output"]
    others = seen.metrics.others
    assert others["netrun_init_us"].value == 362927
    assert others["execute_first_us"].value == 51569
    assert others["execute_later_us"].value == (98937 + 87357) / 2
    assert others["accelerator_execute_first_cycles"].value == 25027
    assert others["accelerator_execute_later_cycles"].value == (9613 + 6048) / 2


def test_why_neither_viewer_read_it_is_said() -> None:
    words = b"error while loading shared libraries: libc++.so.1: cannot open shared object file\n"
    seen = RUNNER.read(RUNNER.start(KIT), KIT, Ended(0, b"", {**LOG, "viewer.txt": words}))
    assert "could not convert" in seen.text
    assert (
        "also failed on the device: error while loading shared libraries: libc++.so.1" in seen.text
    )


@pytest.mark.parametrize(
    ("stderr", "accepted", "problem"),
    [
        (b"", None, ""),
        (SET * 3, True, ""),
        (SET + SET.replace(b"[0]", b"[1007]"), False, "could not set its power configuration"),
        (WARP, False, "Invalid perf_profile warp"),
        (SET + UNKNOWN, False, "Unknown Key: devices/0/cores/0/perf_profile"),
    ],
)
def test_the_record_says_whether_the_mode_was_accepted(
    stderr: bytes, accepted: bool | None, problem: str
) -> None:
    seen = RUNNER.read(RUNNER.start(KIT), KIT, Ended(0, b"", {}, stderr))
    said = json.loads(seen.raw["performance.json"])
    assert (said["perf_profile"], said["accepted"]) == ("burst", accepted)
    assert said["set_by"] == "backend extensions"
    assert bool(seen.problems) == bool(problem)
    assert problem in "".join(seen.problems)


def test_a_configuration_of_ones_own_is_in_force() -> None:
    options = {**NET, "config_file": "b.raw"}
    own = replace(KIT, run=spec(options=options))
    start = RUNNER.start(own)
    assert start.argv[3] == ""
    assert start.argv[start.argv.index("--config_file") + 1] == "b.raw"
    assert "performance.json" not in RUNNER.read(start, own, Ended(0, b"", {})).raw
    with pytest.raises(InputError, match="perf_profile"):
        RUNNER.check(spec(options={**options, "perf_profile": "burst"}))


def test_native_outputs_come_with_their_scale() -> None:
    options = {**NET, "native_outputs": True, "keep_results": True, "profiling": "client"}
    start = RUNNER.start(replace(KIT, run=spec(options=options)))
    assert {"output/Result_*/*", "output/*.raw.json"} <= set(start.collect)
    assert "--keep_num_outputs" not in start.argv
    assert start.argv[start.argv.index("--profiling_level") + 1] == "client"


def test_labels_are_no_list_of_inputs(tmp_path: Path) -> None:
    """A .txt beside the model is a list of inputs only if its first row names samples."""
    (tmp_path / "a.raw").write_bytes(b"x")
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    (tmp_path / "rows.txt").write_text("# made here\nx:=a.raw\n")
    names = ("model.bin", "a.raw", "labels.txt", "rows.txt")
    made = kit("qnn", names, spec(), has_tool=True)
    sources = tuple(
        replace(file, source=tmp_path / file.name, size=9) for file in made.bundle.files
    )
    one = replace(made, bundle=replace(made.bundle, root=tmp_path, files=sources))
    assert RUNNER.start(one).config == "# made here\nx:=a.raw\n"
    alone = replace(one.bundle, files=tuple(f for f in sources if f.name != "rows.txt"))
    with pytest.raises(InputError, match="no list of inputs"):
        RUNNER.start(replace(one, bundle=alone))
