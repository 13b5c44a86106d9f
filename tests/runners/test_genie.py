"""The genie runner: what it starts, and which runs count."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.device.texts import path_of
from fleet.model.bundle import Bundle, Engine
from fleet.model.errors import InputError
from fleet.model.playbook import RunSpec
from fleet.runners import Ended, Kit
from fleet.runners.genie import GenieRunner
from fleet.runners.registry import runner
from tests.profiles.formats.test_genie_profile import CREATED, profile, query, value

BUNDLE = Bundle(
    kind="genie",
    name="tiny",
    root=Path("/b"),
    config_name="genie_config.json",
    config={"dialog": {"type": "basic", "engine": {}}},
    backend="QnnHtp",
    extensions={},
    qairt="2.51.0",
    qairt_source="tool-versions.yaml",
    contexts=(),
    files=(),
    missing=(),
)
LIMITED = {"dialog": {"max-num-tokens": 3, "type": "basic", "engine": {}}}
DATA = Path(__file__).parent / "data" / "genie-t2t-run"
RUN = RunSpec(prompt="line 1\nline 2", max_tokens=10, timeout=30)
GENIE = GenieRunner()
OWN_KIT = Kit(BUNDLE, RUN)
TOOL_KIT = Kit(BUNDLE, RUN, has_tool=True)


def done(tokens: int) -> str:
    return profile(
        CREATED,
        query(
            **{
                "num-generated-tokens": value(tokens),
                "token-generation-rate": value(20.0, "toks/sec"),
            }
        ),
    )


def own(text: str, *, said: str = "hello") -> bytes:
    return json.dumps({"text": said, "profile": text}).encode()


def ended(status: int, stdout: bytes, outcome: bytes) -> Ended:
    return Ended(status, stdout, {"outcome.json": outcome} if outcome else {})


def test_our_runner_where_the_tool_is_missing() -> None:
    start = GENIE.start(OWN_KIT)
    assert start.argv[:2] == ("python3", "{release}/run/fleet_genie.py")
    assert start.argv[start.argv.index("--max-tokens") + 1] == "10"
    assert start.argv[start.argv.index("--timeout") + 1] == "30"
    assert start.prompt == b"line 1\nline 2"
    assert start.cwd == "bundle"
    (script,) = GENIE.files(OWN_KIT)
    assert script.name == "run/fleet_genie.py"
    assert script.executable


def with_dialog(**dialog: object) -> Bundle:
    return replace(BUNDLE, config={"dialog": {"type": "basic", "engine": {}, **dialog}})


def test_options_of_the_tool(tmp_path: Path) -> None:
    (tmp_path / "in.raw").write_bytes(b"x")
    dialog = with_dialog(embedding={"size": 8}, lora={"adapters": [{"name": "a"}]})
    options = {"embedding_file": "in.raw,uint16,0.5,-3", "lora": "a,alpha,0.5"}
    run = RunSpec(options=options)
    tool = Kit(replace(dialog, root=tmp_path), run, has_tool=True)
    argv = GENIE.start(tool).argv
    assert argv[argv.index("--embedding_file") + 1] == "in.raw,uint16,0.5,-3"
    assert argv[argv.index("--lora") + 1] == "a,alpha,0.5"
    assert "--prompt_file" not in argv
    assert "bundle/in.raw" in {file.name for file in GENIE.files(tool)}
    (tmp_path / "in.raw").unlink()
    with pytest.raises(InputError, match=r"does not contain this file"):
        GENIE.files(tool)


@pytest.mark.parametrize(
    ("bundle", "options", "tool", "words"),
    [
        (with_dialog(embedding={"size": 8}), {}, True, "takes embeddings, not text"),
        (with_dialog(), {"lora": "b"}, True, "no adapters"),
        (with_dialog(lora={"adapters": [{"name": "a"}]}), {"lora": "b"}, True, "only the adapters"),
        (with_dialog(), {"tokens_file": "t"}, False, "needs genie-t2t-run"),
        (replace(BUNDLE, config={"text-generator": {}}), {}, True, "one node of a pipeline"),
        (replace(BUNDLE, config_name="app.txt", config={}), {"lora": "b"}, True, "none of the"),
    ],
)
def test_what_a_dialog_cannot_take(
    bundle: Bundle, options: dict[str, str], tool: bool, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        GENIE.files(Kit(bundle, RunSpec(options=options), has_tool=tool))


def test_a_look_up_table_takes_text() -> None:
    assert GENIE.files(Kit(with_dialog(embedding={"lut-path": "t.raw"}), RUN, has_tool=True))


def test_a_pipeline_is_a_run_of_genie_app() -> None:
    bundle = replace(BUNDLE, config_name="genie-app-script.txt", config={}, backend="QnnHtp")
    kit = Kit(bundle, RUN)
    assert GENIE.health(kit, 9.0) is None
    start = GENIE.start(kit)
    assert start.argv == ("{release}/bin/genie-app", "-s", "genie-app-script.txt")
    assert (start.cwd, start.timeout) == ("bundle", 30)
    said = b"[BEGIN]: a cat [END]\n[BEGIN]: a dog [END]"
    outcome = GENIE.read(start, kit, Ended(0, said, seconds=2.0))
    assert (outcome.text, outcome.problems) == ("a cat\na dog", ())
    assert outcome.metrics.others["wall_ms"].value == 2000
    assert GENIE.read(start, kit, Ended(3, said)).problems == ("failed: exit status 3",)
    assert GENIE.features(bundle, RUN) == ("genie-app",)


def test_an_engine_beside_the_npu() -> None:
    engines = (Engine("primary", "QnnHtp"), Engine("secondary", "QnnGenAiTransformer"))
    kit = Kit(replace(BUNDLE, engines=engines), RUN, has_tool=True)
    assert GENIE.features(kit.bundle, RUN) == ("QnnGenAiTransformer",)
    outcome = GENIE.read(GENIE.start(kit), kit, Ended(0, b"", {"profile.json": done(3).encode()}))
    assert outcome.problems == ()
    assert "partly-cpu: the secondary engine uses QnnGenAiTransformer" in outcome.marks


def test_the_tool_gets_a_token_limit_and_a_time_limit() -> None:
    start = GENIE.start(TOOL_KIT)
    assert start.argv[:2] == ("sh", "{release}/run/t2t_run.sh")
    assert start.argv[3] == "{release}/bin/genie-t2t-run"
    assert start.timeout == 30
    assert json.loads(start.config)["dialog"]["max-num-tokens"] == 10
    assert "max-num-tokens" not in BUNDLE.config["dialog"]
    (script,) = GENIE.files(TOOL_KIT)
    assert script.name == "run/t2t_run.sh"
    windows = replace(TOOL_KIT, windows=True)
    assert GENIE.files(windows) == ()
    assert GENIE.start(windows).argv[0] == "{release}/genie-t2t-run.exe"


def test_health_opens_a_session_only() -> None:
    start = GENIE.health(OWN_KIT, 60)
    assert start is not None
    assert "--check" in start.argv
    assert start.prompt == b""


def test_a_good_run() -> None:
    start = GENIE.start(OWN_KIT)
    found = GENIE.read(start, OWN_KIT, ended(0, b"hello", own(done(7))))
    assert (found.text, found.finish, found.problems) == ("hello", "eos", ())
    assert found.metrics.decode_tps == 20.0
    assert json.loads(found.raw["profile.json"])["components"]


def test_a_good_run_of_the_tool() -> None:
    start = GENIE.start(TOOL_KIT)
    stdout = b'Using libGenie.so version 1.17.0\n[INFO] "x"\n[PROMPT]: q\n\n[BEGIN]: hi\nyou[END]\n'
    found = GENIE.read(start, TOOL_KIT, Ended(0, stdout, {"profile.json": done(7).encode()}))
    assert (found.text, found.problems) == ("hi\nyou", ())


def test_a_run_at_the_token_limit_counts_and_is_marked() -> None:
    """A fixed length is how speed is measured; a playbook can exclude such runs."""
    start, said = GENIE.start(OWN_KIT), ("cut: the output reached the token limit of 10",)
    over = ended(0, b"", own(done(10)))
    found = GENIE.read(start, OWN_KIT, over)
    assert (found.finish, found.problems, found.marks) == ("token-limit", (), said)
    strict = replace(OWN_KIT, run=replace(RUN, token_limit_counts=False))
    excluded = GENIE.read(start, strict, over)
    assert (excluded.finish, excluded.problems, excluded.marks) == ("token-limit", said, ())
    whole = GENIE.read(start, OWN_KIT, ended(0, b"", own(done(7))))
    assert (whole.problems, whole.marks) == ((), ())


@pytest.mark.parametrize(
    ("status", "collected", "problem"),
    [
        (124, b"", "cut: the program did not end within 30 s"),
        (137, b"", "cut: the program did not end within 30 s"),
        (13, own(profile(CREATED)), "cut: the output filled the context length of the model"),
        (11, own('{"components": null}'), "failed: the NPU session could not be opened"),
        (10, b"{}", "failed: Genie rejected the configuration of the bundle"),
        (139, b"", "failed: exit status 139"),
        (0, own(profile(CREATED)), "cut: Genie ended before it wrote the times of the query"),
        (0, b"", "cut: Genie ended before it wrote the times of the query"),
        (0, own("{"), "failed: the profile is not valid JSON"),
    ],
)
def test_what_does_not_count(status: int, collected: bytes, problem: str) -> None:
    start = GENIE.start(OWN_KIT)
    found = GENIE.read(start, OWN_KIT, ended(status, b"out", collected))
    assert found.problems[0].startswith(problem)


def test_a_tool_that_knows_no_profile_has_the_times_that_it_prints() -> None:
    """genie-t2t-run of SDK 2.25 has no --profile."""
    out = (DATA / "with--profile-ignored.stdout.txt").read_bytes()
    found = GENIE.read(GENIE.start(TOOL_KIT), TOOL_KIT, Ended(0, out))
    metrics = found.metrics
    assert (metrics.decode_ms, metrics.decode_tps) == (343.666, 72.745)
    assert metrics.others["prompt_ms"].value == 112.152
    assert metrics.generated_tokens == 25
    assert found.problems == ()
    assert found.marks == ("cut: the output reached the token limit of 10",)
    assert found.text.startswith("fleet puts a compiled model on the NPU")
    silent = GENIE.read(GENIE.start(TOOL_KIT), TOOL_KIT, Ended(0, b"[BEGIN]: x[END]"))
    assert silent.problems == ("cut: Genie ended before it wrote the times of the query",)


def test_a_run_without_the_token_limit_is_marked() -> None:
    said = b"[fleet: this libGenie refuses max-num-tokens; it is run again without a token limit]\n"
    ran = Ended(0, b"[BEGIN]: hi[END]", {"profile.json": done(12).encode()}, said)
    found = GENIE.read(GENIE.start(TOOL_KIT), TOOL_KIT, ran)
    assert (found.problems, found.finish, found.marks) == ((), "eos", ("no-token-limit",))


TOOL = """#!/bin/sh
# $KNOWS: options in its help; $REFUSES: keys that its libGenie refuses
if [ "$1" = --help ]; then echo "Usage: $KNOWS"; exit 0; fi
echo "$@" >> argv
for word; do case $last in -c) config=$word ;; esac; last=$word; done
if grep -q "$REFUSES" "$config"; then
  echo "  - at '/': validation failed for additional property 'max-num-tokens': instance" >&2
  exit 1
fi
cp "$config" kept
echo '[BEGIN]: hi[END]'
echo warned >&2
exit ${STATUS:-0}
"""


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox", "mksh"])
def test_the_tool_is_started_with_what_it_knows(tmp_path: Path, shell: str) -> None:
    tool, work = tmp_path / "genie-t2t-run", tmp_path / "work"
    tool.write_text(TOOL)
    tool.chmod(0o755)
    work.mkdir()
    start = GENIE.start(replace(TOOL_KIT, bundle=replace(BUNDLE, config=LIMITED)))
    (work / "config.json").write_text(start.config)

    def ran(**env: str) -> tuple[int, str, str, list[str]]:
        (tmp_path / "argv").unlink(missing_ok=True)
        words = [shell, *(["sh"] if shell == "busybox" else []), str(path_of("t2t_run.sh"))]
        words += [str(work), str(tool), "--prompt_file", "p"]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, cwd=tmp_path,
            env={"PATH": os.environ["PATH"], **env}, timeout=20,
        )  # fmt: skip
        argv = (tmp_path / "argv").read_text().splitlines()
        return done.returncode, done.stdout, done.stderr, argv

    old = ran(KNOWS="--prompt_file PATH", REFUSES="nothing")
    config = f"-c {work}/config.json"
    assert old == (0, "[BEGIN]: hi[END]\n", "warned\n", [f"--prompt_file p {config}"])
    # QAIRT 2.39.0.250926, docs/Genie/general/tutorials/profile, read 2026-11-23
    new = ran(KNOWS="--profile FILENAME", REFUSES="nothing", STATUS="7")
    assert new[0] == 7
    assert new[3] == [f"--prompt_file p --profile {work}/profile.json {config}"]
    status, _, said, argv = ran(KNOWS="", REFUSES="max-num-tokens")
    assert (status, len(argv)) == (0, 2)
    assert "[fleet: this libGenie refuses max-num-tokens" in said
    without = json.loads((tmp_path / "kept").read_text())
    assert without == {"dialog": {"type": "basic", "engine": {}}}


def test_a_cpu_backend_is_marked() -> None:
    start = GENIE.start(OWN_KIT)
    cpu = replace(BUNDLE, backend="QnnGenAiTransformer")
    found = GENIE.read(start, replace(OWN_KIT, bundle=cpu), ended(0, b"", own(done(7))))
    assert found.problems[0].startswith("cpu-fallback")


def test_unknown_runner_names_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        runner("genei")
    assert "genie" in caught.value.hint
