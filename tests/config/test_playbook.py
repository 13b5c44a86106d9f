from __future__ import annotations

from pathlib import Path

import pytest

from fleet.config.chat import shipped
from fleet.config.playbook import load_playbook, playbook_errors
from fleet.model.errors import PlaybookError
from fleet.model.gates import CoolSpec, UntilSpec
from fleet.model.playbook import Playbook, RunSpec, RuntimeSpec
from fleet.model.rollout import Amount, RolloutSpec
from fleet.model.serve import ServeSpec


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tiny", "llama-3b", "other"):
        (tmp_path / "bundles" / name).mkdir(parents=True)
    for name in ("tiny", "llama-3b"):
        (tmp_path / "bundles" / name / "genie_config.json").write_text("{}")
    (tmp_path / "prompt.txt").write_text("Wer bist du?\nü\n", "utf-8")
    return tmp_path


def load(folder: Path, text: str) -> Playbook:
    path = folder / "p.yaml"
    path.write_text(text, "utf-8")
    return load_playbook(path)


def with_run(body: str) -> str:
    return f"name: n\nbundle: bundles/tiny\nrun:\n  {body}\n"


def test_the_least(folder: Path) -> None:
    assert load(folder, "name: tiny\nbundle: bundles/tiny\n") == Playbook(
        path=folder / "p.yaml", name="tiny", bundle=folder / "bundles/tiny"
    )


def test_everything(folder: Path) -> None:
    text = """
name: tiny-1.0
runtime: {version: 2.45.0.260326, target: aarch64-oe-linux-gcc11.2, source: store}
bundle: {path: ./bundles/tiny, kind: genie}
run:
  runner: genie
  prompt: |
    First line
    second line
  max_tokens: 64
  repeats: 3
  warmups: 1
  timeout: 90s
  token_limit_counts: false
health: {timeout: 1m}
strategy: {parallel: 4, keep: 2, tune: [carrier=ssh, bandwidth=50MB/s]}
"""
    assert load(folder, text) == Playbook(
        path=folder / "p.yaml",
        name="tiny-1.0",
        bundle=folder / "bundles/tiny",
        runtime=RuntimeSpec("2.45.0.260326", "aarch64-oe-linux-gcc11.2", wheel=False),
        run=RunSpec(
            prompt="First line\nsecond line\n",
            max_tokens=64,
            repeats=3,
            warmups=1,
            timeout=90.0,
            token_limit_counts=False,
        ),
        health_timeout=60.0,
        parallel=4,
        keep=2,
        tune=("carrier=ssh", "bandwidth=50MB/s"),
    )


def test_a_playbook_without_a_bundle_deploys_the_runtime(folder: Path) -> None:
    found = load(folder, 'name: n\nruntime: "2.51.0"\n')
    assert (found.bundle_kind, found.runtime.version, found.run) == ("runtime", "2.51.0", None)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("bundle", RuntimeSpec()),
        ('"2.51.0"', RuntimeSpec("2.51.0")),
        ("2.51.0", RuntimeSpec("2.51.0")),
        ("{version: bundle}", RuntimeSpec()),
        ("{version: '2.51.0', source: any}", RuntimeSpec("2.51.0")),
        ("{target: auto, source: store}", RuntimeSpec(wheel=False)),
        ("{target: x86_64-linux-clang}", RuntimeSpec(target="x86_64-linux-clang")),
        ("{}", RuntimeSpec()),
    ],
)
def test_runtime(folder: Path, text: str, spec: RuntimeSpec) -> None:
    assert load(folder, f"name: n\nbundle: bundles/tiny\nruntime: {text}").runtime == spec


def test_paths_start_from_the_playbook(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "books").mkdir()
    path = folder / "books" / "p.yaml"
    path.write_text("name: n\nbundle: ../bundles/tiny\nrun: {prompt_file: ../prompt.txt}")
    monkeypatch.chdir(folder)
    found = load_playbook(Path("books/p.yaml"))
    assert found.bundle == folder / "bundles/tiny"
    assert found.path == path
    assert found.run is not None
    assert found.run.prompt == "Wer bist du?\nü\n"
    monkeypatch.setenv("HOME", str(folder))
    assert load(folder, "name: n\nbundle: ~/bundles/tiny").bundle == folder / "bundles/tiny"


@pytest.mark.parametrize(
    ("body", "prompt", "warned"),
    [
        (r"prompt: one\ntwo", r"one\ntwo", True),
        (r'prompt: "one\ntwo"', "one\ntwo", False),
        ("prompt: |-\n    one\n    two", "one\ntwo", False),
        ("prompt: '{{ x }}'", "{{ x }}", False),
        (r'prompt: "one\r\ntwo"', "one\r\ntwo", True),
        ("prompt: |\n    a<|end_header_id|>\n\n", "a<|end_header_id|>\n", True),
        ("prompt: |+\n    a<|end_header_id|>\n", "a<|end_header_id|>\n\n", False),
    ],
)
def test_newlines_of_a_prompt(folder: Path, body: str, prompt: str, warned: bool) -> None:
    found = load(folder, with_run(body))
    assert found.run is not None
    assert found.run.prompt == prompt
    assert bool(found.warnings) == warned
    if warned:
        assert found.warnings[0].startswith(f"{folder / 'p.yaml'}:4:11: the prompt")


# whole file, line:column, part of message and hint
R = "name: n\nbundle: bundles/tiny\nrollout: {"
BAD = [
    ("name: n\n", "1:1", "key 'bundle' is missing", "add `bundle: FOLDER`; or `runtime:"),
    ('name: n\nruntime: "2.51.0"\nrun: {prompt: x}', "3:1", "`run:` needs a model", "bundle:"),
    ('name: n\nruntime: "2.51.0"\nserve: {}', "3:1", "`serve:` needs a model", "remove `serve:`"),
    ("nam: n\nbundle: bundles/tiny", "1:1", "unknown key 'nam'", "did you mean 'name'?"),
    ("name: n\nbundle: bundles/tiny\nzzz: 1", "3:1", "unknown key 'zzz'", "one of: name, bundle"),
    ("name: 2024\nbundle: bundles/tiny", "1:7", "'name' must be text", '"2024"'),
    ("name: a/b\nbundle: bundles/tiny", "1:7", "'a/b' is not a valid release name", "letters"),
    (
        "name: .a\nbundle: bundles/tiny",
        "1:7",
        "'.a' is not a valid release name",
        "begin with a letter or digit",
    ),
    (f"name: {'a' * 65}\nbundle: bundles/tiny", "1:7", "is not a valid release name", "up to 64"),
    ("name:\nbundle: bundles/tiny", "1:6", "'name' has no value", "write a value"),
    ("name: n\nbundle: [a]", "2:9", "'bundle' must be text, not a list", ""),
    ("name: n\nbundle: {pth: x}", "2:10", "unknown key 'pth'", "did you mean 'path'?"),
    ("name: n\nbundle: {kind: genie}", "2:9", "key 'path' is missing", "add `path:`"),
    (
        "name: n\nbundle: {path: bundles/tiny, kind: genei}",
        "2:36",
        "not a value of 'kind'",
        "genie",
    ),
    (R + "wave: 1}", "3:11", "unknown key 'wave'", "did you mean 'waves'?"),
    (R + "canary: true}", "3:19", "not a boolean", "evk-01"),
    (R + "canary: []}", "3:19", "not a list", "evk-01"),
    (R + "canary: -1}", "3:19", "'-1' is neither a number of devices", "count"),
    (R + "max_failed: 101%}", "3:23", "101% is more than 100% of the devices", "100%"),
    (R + "max_failed: 1.5}", "3:23", "a count or a percentage", "10%"),
    (R + "max_unreachable: few}", "3:28", "'few' is neither", "10%"),
    (R + "waves: 3}", "3:18", "'waves' must be a list", "[5%, 50%]"),
    (R + "waves: [5%, x]}", "3:18", "'x' is neither", "10%"),
    (R + "waves: [50%, 5%]}", "3:18", "follows wave 50%, but adds no device", "increasing shares"),
    (R + "waves: [0]}", "3:18", "a wave cannot have 0 devices", "remove the 0"),
    (R + "soak: 0}", "3:17", "more than 0", "90s"),
    (R + "on_fail: stopp}", "3:20", "'stopp' is not a value of 'on_fail'", "did you mean 'stop'?"),
    ("name: n\nbundle: bundles/tny", "2:9", "does not exist", "did you mean 'tiny'?"),
    ("name: n\nbundle: bundles/zzz", "2:9", "does not exist", ": llama-3b, tiny"),
    ("name: n\nbundle: {path: bundles/tny}", "2:16", "does not exist", "mean 'tiny'?"),
    ("name: n\nbundle: nowhere/x/y", "2:9", "does not exist", "has no 'nowhere'"),
    ("name: n\nbundle: prompt.txt", "2:9", "is a file; it must be a folder", "name a folder"),
    ("name: n\nbundle: bundles/tiny/genie_config.json", "2:9", "is a file", "bundles/tiny"),
    (
        "name: n\nbundle: ~no-such-user-here/x",
        "2:9",
        "names a user that does not exist",
        "whole path",
    ),
]

RUNTIME = "name: n\nbundle: bundles/tiny\nruntime: "
BAD += [
    (RUNTIME + "2.51", "3:10", "YAML reads it as a number", 'in quotes: "2.51.0"'),
    (RUNTIME + "251", "3:10", "YAML reads it as a number", "in quotes"),
    (RUNTIME + "{version: 2.50}", "3:20", "YAML reads it as a number", "in quotes"),
    (RUNTIME + '"2.51"', "3:10", "'2.51' is not a QAIRT version", '"2.51.0"'),
    (RUNTIME + "v2.51.0", "3:10", "'v2.51.0' is not a QAIRT version", '"2.51.0"'),
    (RUNTIME + "latest", "3:10", "'latest' is not a QAIRT version", "`bundle`"),
    (RUNTIME + "[a]", "3:10", "'runtime' must be text, not a list", ""),
    (RUNTIME + "{vers: a}", "3:11", "unknown key 'vers'", "did you mean 'version'?"),
    (RUNTIME + "{target: ubuntu}", "3:19", "'ubuntu' is not a valid QAIRT target", "`auto`"),
    (RUNTIME + "{source: wheel}", "3:19", "not a value of 'source'", "one of: any, store"),
    (RUNTIME + "{source: stor}", "3:19", "not a value of 'source'", "did you mean 'store'?"),
]
BAD += [
    (with_run("max_tokens: 3"), "3:1", "`run` has no prompt", "prompt: |"),
    (with_run("{prompt: a, prompt_file: b}"), "4:15", "both prompt and prompt_file", "remove one"),
    (with_run("prompt: ''"), "4:11", "the prompt is empty", "prompt: |"),
    (with_run("prompt: ' '"), "4:11", "the prompt is empty", "prompt: |"),
    (with_run("prompt: 42"), "4:11", "'prompt' must be text", '"42"'),
    (with_run("prompt_file: promt.txt"), "4:16", "promt.txt does not exist", "mean prompt.txt?"),
    (with_run("prompt_file: bundles"), "4:16", "cannot read", ""),
    (with_run("prompt_file: latin1"), "4:16", "is not UTF-8", "iconv"),
    (
        with_run("prompt_file: nul"),
        "4:16",
        "contains NUL bytes",
        "set `prompt_file:` to the text file",
    ),
    (
        with_run("prompt_file: big"),
        "4:16",
        "is larger than 1 MB",
        "set `prompt_file:` to the text file",
    ),
    (with_run("{prompt: a, max_token: 3}"), "4:15", "unknown key 'max_token'", "'max_tokens'?"),
    (with_run("{prompt: a, max_tokens: 0}"), "4:27", "'max_tokens' must be at least 1", ""),
    (with_run("{prompt: a, max_tokens: '9'}"), "4:27", "must be a whole number", "quotes"),
    (with_run("{prompt: a, repeats: 0}"), "4:24", "'repeats' must be at least 1, not 0", ""),
    (with_run("{prompt: a, repeats: yes}"), "4:24", "must be a whole number, not a boolean", ""),
    (with_run("{prompt: a, warmups: -1}"), "4:24", "'warmups' must be at least 0", ""),
    (with_run("{prompt: a, timeout: 5 min}"), "4:24", "'5 min' is not a duration", "90s, 5m"),
    (with_run("{prompt: a, runner: geni}"), "4:23", "no runner is called 'geni'", "'genie'?"),
    (with_run("{prompt: a, token_limit_counts: 1}"), "4:35", "must be true or false", ""),
    (with_run("[a]"), "4:3", "'run' must be a mapping, not a list", ""),
    ("name: n\nbundle: bundles/tiny\nhealth: 3", "3:9", "'health' must be a mapping", ""),
    ("name: n\nbundle: bundles/tiny\nhealth: {timout: 3}", "3:10", "unknown key", "'timeout'?"),
    ("name: n\nbundle: bundles/tiny\nstrategy: {keep: 0}", "3:18", "at least 1, not 0", ""),
    (
        "name: n\nbundle: bundles/tiny\nstrategy: {tune: [relais]}",
        "3:19",
        "is not a valid word of `tune`",
        "relay",
    ),
    ("name: n\nbundle: bundles/tiny\nstrategy: {paralel: 0}", "3:12", "unknown key", "'parallel'?"),
]


BAD += [
    (with_run("{prompt: a, cool: hot}"), "4:21", "'hot' is not a temperature", "45C"),
    (with_run("{prompt: a, cool: 113F}"), "4:21", "'113F' is not a temperature", "45C"),
    (with_run("{prompt: a, cool: 200C}"), "4:21", "not a temperature from 1 to 150", "45C"),
    (with_run("{prompt: a, cool: [45]}"), "4:21", "must be a temperature", "45C"),
    (with_run("{prompt: a, cool: {belo: 3}}"), "4:22", "unknown key 'belo'", "'below'?"),
    (with_run("{prompt: a, cool: {zone: x}}"), "4:21", "key 'below' is missing", "add `below:`"),
    (
        with_run("{prompt: a, cool: {below: 9, otherwise: goon}}"),
        "4:43",
        "value of 'otherwise'",
        "go on",
    ),
    (
        with_run("{prompt: a, cool: {below: 9, zone: ''}}"),
        "4:38",
        "'' is not a valid thermal zone",
        "glob",
    ),
    (with_run("{prompt: a, until: 3}"), "4:22", "must be a percentage", "3%"),
    (with_run("{prompt: a, until: 0%}"), "4:22", "'0%' is not a percentage", "3%"),
    (
        with_run("{prompt: a, until: {narrower: 3%, at_most: 3}}"),
        "4:46",
        "at_most is 3, but a confidence interval needs",
        "5 or more",
    ),
    (
        with_run("{prompt: a, until: {narrower: 3%, at_most: 6, level: 99%}}"),
        "4:15",
        "6 runs are too few for the confidence level 99%",
        "at_most: 7",
    ),
    (with_run("{prompt: a, until: {narrower: 3%, at_most: yes}}"), "4:46", "a whole number", ""),
    (
        with_run("{prompt: a, until: {narrower: 3%, level: 20%}}"),
        "4:44",
        "level 20% is below 50%",
        "95%",
    ),
    (
        with_run("{prompt: a, until: {narrower: 3%, metric: A b}}"),
        "4:45",
        "not a valid metric",
        "ttft",
    ),
    (with_run("{prompt: a, until: 3%, sustained: 9m}"), "4:26", "both until and sust", "remove"),
    (with_run("{prompt: a, repeats: 50, until: 3%}"), "4:28", "`repeats` asks for 50", "at_most"),
    (with_run("{prompt: a, sustained: 5 min}"), "4:26", "'5 min' is not a duration", "90s, 5m"),
    (with_run("{prompt: a, sample: 1ms}"), "4:23", "between 100 ms and 1 min", "`off`"),
    (with_run("{prompt: a, sample: on}"), "4:23", "a duration or `off`", "1s"),
]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("cool: 45C", {"cool": CoolSpec(45.0)}),
        ("cool: 45", {"cool": CoolSpec(45.0)}),
        (
            "cool: {below: 42.5 °C, zone: cpu*, timeout: 2m, otherwise: go on}",
            {"cool": CoolSpec(42.5, "cpu*", 120.0, "go on")},
        ),
        ("until: 3%", {"until": UntilSpec(0.03)}),
        (
            "until: {narrower: 1.5%, metric: ttft_ms, at_most: 9, level: 99%}",
            {"until": UntilSpec(0.015, "ttft_ms", 9, 0.99)},
        ),
        ("sustained: 10m", {"sustained": 600.0}),
        ("sample: off", {"sample": None}),
        ("sample: 500ms", {"sample": 0.5}),
    ],
)
def test_gates(folder: Path, text: str, values: dict[str, object]) -> None:
    found = load(folder, with_run(f"prompt: a\n  {text}")).run
    assert found == RunSpec(prompt="a", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "place", "message", "hint"), BAD)
def test_refused(folder: Path, text: str, place: str, message: str, hint: str) -> None:
    (folder / "latin1").write_bytes(b"M\xfcller")
    (folder / "nul").write_bytes(b"a\0b")
    (folder / "big").write_bytes(b"a" * ((1 << 20) + 1))
    with pytest.raises(PlaybookError) as caught:
        load(folder, text)
    assert str(caught.value.position) == f"{folder / 'p.yaml'}:{place}"
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


def test_others_are_counted(folder: Path) -> None:
    with pytest.raises(PlaybookError) as caught:
        load(folder, "nam: n\nbundle: 3\n\nhealth: 3\nstrategy: 4\n")
    assert "unknown key 'nam' (and 3 more, line 2, 4, 5)" in str(caught.value)


def test_a_syntax_error_is_a_playbook_error(folder: Path) -> None:
    with pytest.raises(PlaybookError, match="a tab is used"):
        load(folder, "name: n\nrun:\n\tprompt: x\n")


WAVES = (Amount.parse(1), Amount.parse("5%"), Amount.parse("50%"))
ROLLOUT = [
    ("{}", RolloutSpec()),
    ("{canary: 1}", RolloutSpec(canary=Amount.parse(1))),
    ("{canary: 5%}", RolloutSpec(canary=Amount.parse("5%"))),
    ("{canary: '2'}", RolloutSpec(canary=Amount.parse(2))),
    ("{canary: evk-01}", RolloutSpec(canary_hosts=("evk-01",))),
    ("{canary: [evk-01, 'iq9[0]']}", RolloutSpec(canary_hosts=("evk-01", "iq9[0]"))),
    ("{waves: [1, 5%, 50 %]}", RolloutSpec(waves=WAVES)),
    ("{max_failed: 12.5%}", RolloutSpec(max_failed=Amount.parse("12.5%"))),
    ("{max_unreachable: 3, on_fail: rollback}",
     RolloutSpec(max_unreachable=Amount.parse(3), on_fail="rollback")),
    ("{soak: 5m}", RolloutSpec(soak=300.0)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "spec"), ROLLOUT)
def test_rollout(folder: Path, text: str, spec: RolloutSpec) -> None:
    assert load(folder, f"name: n\nbundle: bundles/tiny\nrollout: {text}").rollout == spec
    assert load(folder, "name: n\nbundle: bundles/tiny\n").rollout is None


SERVED = "name: n\nbundle: bundles/tiny\nserve: "


def test_a_service_with_all_its_keys(folder: Path) -> None:
    text = """
  backend: genie
  port: 9000
  bind: 0.0.0.0
  queue: 0
  max_tokens: 10
  max_prompt_bytes: 100
  request_timeout: 1m
  stop_timeout: 5s
  template: phi
"""
    serve = load(folder, SERVED + text).serve
    assert serve == ServeSpec(
        "genie", 9000, "0.0.0.0", 0, 10, 100, 60.0, 5.0, shipped("phi").for_service()
    )
    assert not serve.private
    least = load(folder, SERVED + "{}\n").serve
    assert least == ServeSpec()
    assert least.private
    named = load(folder, SERVED + "{template: llama3}\n").serve
    assert named is not None
    assert named.template == shipped("llama3").for_service()


def test_a_service_has_the_chat_template_of_its_model(folder: Path) -> None:
    bundle = load(folder, SERVED + "{}\n").bundle
    (bundle / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    own = load(folder, SERVED + "{}\n").serve
    assert own is not None
    assert own.template == {"source": "{{ messages[0].content }}!", "bos": "", "eos": ""}
    (bundle / "chat_template.jinja").write_text("{% if %}")
    assert load(folder, SERVED + "{}\n").serve == ServeSpec(), "nobody asked for this template"
    (folder / "own.jinja").write_text("{% if %}")
    with pytest.raises(PlaybookError, match=r"own\.jinja is wrong in line 1"):
        load(folder, SERVED + "{template: own.jinja}\n")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{port: 0}", "port"),
        ("{port: 70000}", "port"),
        ("{bind: 'a b'}", "address"),
        ("{template: lama3}", "chat template"),
        ("{template: {user: x}}", "text"),
        ("{backend: tpu}", "backend"),
        ("{tokens: 5}", "tokens"),
    ],
)
def test_a_service_that_is_wrong(folder: Path, value: str, words: str) -> None:
    with pytest.raises(PlaybookError) as caught:
        load(folder, f"{SERVED}{value}\n")
    assert words in caught.value.message
    assert caught.value.position is not None
    assert caught.value.position.line == 3


MISTAKES = """\
name: tiny llm
bundel: bundle
runtime:
  version: 2.50
  target: aarch64-oe
  source: shop
run:
  runner: genie
  prompt: hi
  max_tokens: "64"
  repeats: 0
  warmups: -1
  timeout: 5 parsecs
  cool: warm
  until: {within: 300%}
  sample: sometimes
strategy:
  parallel: many
  tune: [carier=ssh, relay=maybe]
rollout:
  on_fail: explode
  waves: {}
health: yes
"""
MISTAKEN = [  # line, column, message
    (1, 7, "'tiny llm' is not a valid release name"),
    (2, 1, "unknown key 'bundel'"),
    (4, 12, "the version is not quoted, so YAML reads it as a number (2.50 becomes 2.5)"),
    (6, 11, "'shop' is not a value of 'source'"),
    (10, 15, "'max_tokens' must be a whole number, not text"),
    (11, 12, "'repeats' must be at least 1, not 0"),
    (12, 12, "'warmups' must be at least 0, not -1"),
    (13, 12, "'5 parsecs' is not a duration"),
    (14, 9, "'warm' is not a temperature from 1 to 150 °C"),
    (15, 10, "key 'narrower' is missing"),
    (15, 11, "unknown key 'within'"),
    (16, 11, "'sometimes' is not a duration"),
    (18, 13, "'parallel' must be a whole number, not text"),
    (19, 10, "'carier=ssh' is not a valid word of `tune`"),
    (19, 22, "'relay=maybe' is not a valid word of `tune`"),
    (21, 12, "'explode' is not a value of 'on_fail'"),
    (22, 10, "'waves' must be a list, not a mapping"),
    (23, 9, "'health' must be a mapping, not a boolean"),
]


def test_all_mistakes_are_named_at_once_each_with_its_place_and_cure(folder: Path) -> None:
    path = folder / "p.yaml"
    path.write_text(MISTAKES, "utf-8")
    errors = playbook_errors(path)
    found = [(at.line, at.column, error.message) for error in errors if (at := error.position)]
    assert found == MISTAKEN
    assert all(error.hint for error in errors)
