"""What a command does not use is not imported for it: starting is most of a short command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Third parties that take their time, each with what only it is needed for.
HEAVY = {
    "adbutils",  # the adb program, where the PATH has none
    "asyncio",
    "cryptography",
    "distributed",
    "fabric",  # a peer of the benchmarks
    "http.client",  # of urllib.request; 11 ms with ssl and mail
    "httpx",  # downloads
    "invoke",  # `Match exec` of an ssh config
    "numpy",
    "paramiko",
    "pyarrow",
    "pydantic",  # nothing needs it
    "pysequoia",  # keys of package repositories
    "qai_hub",
    "re2",
    "rich.console",  # words for people
    "statistics",
    "unittest",
}
OTHER_ROOMS = {
    "doctor", "lab", "profiles.store", "profiles.formats", "runners", "runtimes", "serving",
}  # fmt: skip
OF_DEPLOYS = {
    "fleet.config.ansible",
    "fleet.config.playbook",
    "fleet.engine.deploy.operation",
    "fleet.engine.rollout",
    "fleet.engine.run.start",
    "fleet.engine.transfer.relaying",
    "fleet.model.bundle",
    "fleet.model.playbook",
    "fleet.model.record",
    "fleet.ops.system",
    "fleet.transport.adb",
    "fleet.transport.neighbour",
    "fleet.transport.ssh",
}


def imported(*lines: str) -> set[str]:
    """Modules of a Python of its own after these lines."""
    code = "\n".join((*lines, "import sys, json", "print(json.dumps(sorted(sys.modules)))"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "words", ["push", "status", "facts", "reserve", "get", "exec", "logs", "config check"]
)
def test_a_command_without_a_playbook_imports_little(words: str) -> None:
    found = imported("from fleet.cli.main import build", f"build(*{words.split()})")
    rooms = {f"fleet.{room}" for room in OTHER_ROOMS}
    assert found & (HEAVY | OF_DEPLOYS | rooms) == set()


def test_a_deploy_imports_no_client_of_the_web() -> None:
    found = imported("from fleet.cli.main import build", "build('deploy')")
    late = HEAVY - {"statistics"}
    assert found & (late | {"fleet.doctor", "fleet.lab", "fleet.bundles.aihub"}) == set()


def test_explaining_a_code_loads_nothing_for_devices() -> None:
    found = imported("from fleet.cli.main import build", "build('doctor')")
    assert not {one for one in found if one.startswith(("fleet.engine", "fleet.transport"))}
    assert "fleet.doctor.examine" not in found


def test_a_log_needs_no_pydantic(tmp_path: Path) -> None:
    """typer would import it for each option, whether it was given or not: 0.1 s."""
    (tmp_path / "run.log").write_text("scp: write: No space left on device\n", "utf-8")
    found = imported(
        "import contextlib, io, sys",
        "import fleet.cli.main as main",
        f"sys.argv = ['fleet', 'doctor', '--log', {str(tmp_path / 'run.log')!r}]",
        "with contextlib.redirect_stdout(io.StringIO()) as said:",
        "    try: main.main()",
        "    except SystemExit as end: assert end.code == 1",
        "assert 'disk-full' in said.getvalue()",
    )
    assert found & {"pydantic", "yaml", "fleet.model.events"} == set()


COMMAND_LINES = [
    ("push", "-i", "{lab}", "-l", "s24", "--keep", "3", "-p", "2", "--tune", "whole", "{lab}"),
    ("status", "-i", "{lab}", "--json"),
    ("facts", "-i", "{lab}", "-o", "wide"),
    ("get", "-i", "{lab}", "/data/x", "{lab}.d"),
]


@pytest.mark.parametrize("words", COMMAND_LINES, ids=lambda words: words[0])
def test_a_command_line_is_read_without_pydantic(words: tuple[str, ...], tmp_path: Path) -> None:
    """Paths, numbers and choices that are plainly right."""
    lab = tmp_path / "lab.yaml"
    phone = "{transport: adb, serial: x, adb_server: '127.0.0.1:1'}"
    lab.write_text(f"all: {{hosts: {{s24: {phone}}}}}\n", "utf-8")
    argv = ["fleet", *(word.format(lab=lab) for word in words)]
    found = imported(
        "import contextlib, io, sys",
        "import fleet.cli.main as main",
        "import fleet.transport.adb as adb",
        "def find(self, deadline): raise SystemExit(70)",  # all is read by then
        "adb.AdbTransport._find = find",
        f"sys.argv = {argv!r}",
        "try: main.main()",
        "except SystemExit as end: assert end.code == 70, end.code",
    )
    assert found & {"pydantic", "paramiko", "importlib.metadata", "fleet.lab"} == set()


def test_a_phone_costs_no_third_party() -> None:
    """adbutils takes 0.15 s, for requests and PIL."""
    found = imported("import fleet.transport.adb, fleet.transport.adbserver")
    assert found & {"adbutils", "requests", "PIL"} == set()


def test_the_version_needs_no_command() -> None:
    found = imported(
        "import sys",
        "import fleet.cli.main as main",
        "sys.argv = ['fleet', '--version']",
        "try: main.main()",
        "except SystemExit as end: assert not end.code",
    )
    assert {one for one in found if one.startswith(("fleet.engine", "fleet.config"))} == set()


INVENTORIES = (
    ("{port: 2222, connect_timeout: 5s, labels: {lan: a}}", "hosts[0].port == 2222"),
    ("{base_dir: C:\\npu, labels: {lan: ö}}", "hosts[0].base_dir == 'C:/npu'"),
)


@pytest.mark.parametrize(("keys", "expected"), INVENTORIES)
def test_an_inventory_needs_no_pydantic(tmp_path: object, keys: str, expected: str) -> None:
    path = f"{tmp_path}/lab.yaml"
    text = f"all:\n  hosts:\n    evk: {keys}\n"
    found = imported(
        f"open({path!r}, 'w', encoding='utf-8').write({text!r})",
        "from pathlib import Path",
        "from fleet.config.inventory import load_inventory",
        f"assert load_inventory(Path({path!r})).{expected}",
    )
    assert "pydantic" not in found


def test_words_for_people_are_loaded_while_devices_are_waited_for() -> None:
    found = imported(
        "import fleet.cli.live as live",
        "with live.listening(as_json=False, ready=False) as listener: pass",
    )
    assert "rich.console" not in found


LATE = {"fabric"}
PLAYBOOK = "playbooks/tiny-genie.yaml"
ON_SSH_HOSTS = [
    ("facts",),
    ("status",),
    ("reserve", "--list"),
    ("push", PLAYBOOK),
    ("rollback", "tiny-genie"),
    ("deploy", PLAYBOOK),
    ("plan", PLAYBOOK),
    ("plan", PLAYBOOK, "--write-lock"),
    ("config", "lock", PLAYBOOK),
    ("run", PLAYBOOK),
    ("deploy", "--only", "system", PLAYBOOK),
]


@pytest.mark.parametrize("command", ON_SSH_HOSTS, ids=" ".join)
def test_what_an_ssh_host_needs_is_there_before_threads_are(
    command: tuple[str, ...], tmp_path: object
) -> None:
    path = f"{tmp_path}/lab.yaml"
    argv = ["fleet", *command, "-i", path]
    found = imported(
        f"open({path!r}, 'w').write('all: {{hosts: {{evk: {{host: 127.0.0.1}}}}}}')",
        "import sys, threading",
        "def start(self): raise SystemExit",
        "threading.Thread.start = start",
        "import fleet.cli.main as main",
        f"sys.argv = {argv!r}",
        "try: main.main()",
        "except BaseException: pass",
    )
    assert "paramiko" in found
    assert found & LATE == set()


def test_an_ssh_host_needs_no_fabric() -> None:
    found = imported(
        "from fleet.model.inventory import Host",
        "from fleet.transport import transport_for",
        "transport_for(Host('b', address='127.0.0.1'))",
    )
    assert "paramiko" in found
    assert "fabric" not in found
