"""The doctor's look under every POSIX shell, with tools missing, and with an answer that lies."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from fleet.doctor.checks import LOOKS, every
from fleet.doctor.examine import _FEED, Round, _of_checks, _probe, judge
from fleet.doctor.seen import Seen, seen, subjects
from fleet.lab.profiles import profile
from fleet.model.command import Result
from fleet.model.diagnosis import OK, UNKNOWN, WARN, Check
from fleet.model.errors import DeviceError
from fleet.model.inventory import Host
from fleet.model.plain import to_plain
from tests.facts.test_probe import SHELLS, argv_of

HOST = Host("evk-01")
# The head of an ELF file for aarch64, as od prints it; it has no table of sections.
ARM_ELF = "7f454c46020101" + "00" * 9 + "0300b700" + "00" * 44


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root with space"
    profile("iq9075").write(root)
    shutil.copytree(root / "root", root, dirs_exist_ok=True)
    (root / "dev" / "dma_heap").mkdir(parents=True)
    for name in ("fastrpc-cdsp", "dma_heap/system"):
        (root / "dev" / name).touch()
    return root


def answer(shell: str, tree: Path, base: Path, *, folders: str = "", **env: str) -> str:
    done = subprocess.run(
        [*argv_of(shell), "-c", _FEED, "fleet", str(base), folders, ""],
        input=_probe(android=False),
        capture_output=True,
        text=True,
        env={**os.environ, "FLEET_SYSROOT": str(tree), **env},
        check=False,
        timeout=60,
    )
    assert "PATH" in env or done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def release(base: Path) -> None:
    """A release as fleet leaves it, with one blob."""
    blob = base / "store" / ("ab" * 32)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"content")
    folder = base / "releases" / "tiny" / "0123456789abcdef"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "a b.so").symlink_to(blob)
    own = base / "meta" / "tiny" / "0123456789abcdef"
    own.mkdir(parents=True)
    (own / "manifest.json").write_text(
        '{"name": "tiny", "env": {"LD_LIBRARY_PATH": "{release}/lib"}, "unset": [],\n'
        ' "origin": {"build_id": "2.51.0.260929181845", "target": "aarch64-oe-linux-gcc11.2"},'
        ' "files": [{"name": "lib/a b.so", "size": 7, "sha256": "' + "ab" * 32 + '"}]}'
    )
    (own / ".installed").touch()
    (base / "current").mkdir()
    (base / "current" / "tiny").symlink_to(folder)
    (base / "history").mkdir()
    (base / "history" / "tiny").write_text("0123456789abcdef\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_says_the_same(shell: str, tree: Path, tmp_path: Path) -> None:
    base = tmp_path / "base folder"
    release(base)
    hand = tmp_path / "by hand"
    hand.mkdir()
    (hand / "libQnnHtp.so").write_bytes(b"\x7fELF" + bytes(100) + b"v2.47.0.260601114230\0")
    (hand / "model.bin").write_bytes(
        b"x" * 900 + b"v2.47.0.260601114230\0soc_type=QCS9100;arch=73;"
    )
    (hand / "genie_config.json").write_text('{"dialog":\n {"type": "basic"}}')
    found = seen(answer(shell, tree, base, folders=str(hand)), HOST)
    (one,) = found.releases
    assert (one.name, one.installed, one.links) == (
        "tiny",
        True,
        {"lib/a b.so": str(base / "store" / ("ab" * 32))},
    )
    assert one.sizes == {"lib/a b.so": 7}
    assert one.history == ("0123456789abcdef",)
    assert one.manifest is not None
    (folder,) = found.folders
    assert [elf.build for elf in folder.elves] == ["v2.47.0.260601114230"]
    assert (folder.contexts[0].build, folder.contexts[0].arch) == ("v2.47.0.260601114230", "v73")
    assert list(folder.configs.values()) == ['{"dialog":\n {"type": "basic"}}']
    assert {check.status for check in every(found)} >= {"ok"}


@pytest.mark.parametrize("shell", SHELLS)
def test_files_named_like_ours_are_there(shell: str, tree: Path, tmp_path: Path) -> None:
    base = tmp_path / "base folder"
    release(base)
    rel = base / "releases" / "tiny" / "0123456789abcdef"
    own = base / "meta" / "tiny" / "0123456789abcdef"
    names = [
        f"{at}{name}" for name in ("manifest.json", ".seal", ".installed") for at in ("", "lib/")
    ]
    told = json.loads((own / "manifest.json").read_text())
    (entry,) = told["files"]
    told["files"] += [{**entry, "name": name} for name in names]
    (own / "manifest.json").write_text(json.dumps(told))
    for name in names:
        (rel / name).symlink_to(base / "store" / entry["sha256"])
    found = seen(answer(shell, tree, base), HOST)
    (one,) = found.releases
    assert set(one.sizes) == {"lib/a b.so", *names}
    (subject,) = subjects(found)
    assert subject.missing == ()


@pytest.mark.parametrize("shell", SHELLS)
def test_what_was_staged_is_seen_where_nothing_is_live(
    shell: str, tree: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base folder"
    release(base)
    live = base / "releases" / "tiny" / "0123456789abcdef"
    staged = base / "releases" / "tiny" / "fedcba9876543210"
    shutil.copytree(live, staged, symlinks=True)
    shutil.copytree(own := base / "meta" / "tiny" / live.name, own.with_name(staged.name))
    (own.with_name(staged.name) / ".installed").unlink()

    def labels() -> list[str]:
        return [one.label for one in subjects(seen(answer(shell, tree, base), HOST))]

    assert labels() == ["release tiny"]
    shutil.rmtree(live)
    (base / "current" / "tiny").unlink()
    (base / "history" / "tiny").unlink()
    found = subjects(seen(answer(shell, tree, base), HOST))
    assert [(one.label, one.unsealed) for one in found] == [
        ("release tiny (staged, never live)", False)
    ]
    assert (found[0].missing, found[0].damaged, found[0].strange) == ((), (), ())


def test_search_paths_of_the_login_are_read(tree: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("# ADSP_LIBRARY_PATH=/x:/y\nexport ADSP_LIBRARY_PATH=/a:/b\n")
    found = seen(answer("dash", tree, tmp_path / "base", HOME=str(home)), HOST)
    (check,) = [one for one in every(found) if one.id == "paths"]
    assert check.facts == {"env.adsp": "colon", "slot.setting": f"{home}/.bashrc"}
    assert check.command == f"sed -n 2p {home}/.bashrc"


@pytest.mark.parametrize(
    "missing", ["stat", "readlink", "find", "od", "grep", "ps", "head", "tail"]
)
def test_a_missing_tool_is_no_crash(missing: str, tree: Path, tmp_path: Path) -> None:
    """What could not be seen is not called damaged without a word."""
    base = tmp_path / "base"
    release(base)
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for path in Path(folder).iterdir():
            if path.name != missing and not (tools / path.name).exists():
                (tools / path.name).symlink_to(path)
    if missing != "ps" and not (tools / "ps").exists():  # a bare Debian has none
        (tools / "ps").write_text("#!/bin/sh\necho '1 init'\n")
        (tools / "ps").chmod(0o755)
    found = seen(answer("dash", tree, base, PATH=str(tools)), HOST)
    checks = list(every(found))
    assert [one.text for one in checks if "the check failed" in one.text] == []
    assert not any(one.facts.get("release") == "damaged" for one in checks)
    (busy,) = [one for one in checks if one.id == "busy"]
    assert (busy.status == UNKNOWN) == (missing in {"ps", "grep", "tail"})
    assert busy.facts == ({} if busy.status == UNKNOWN else {"device.busy": "no"})


@pytest.mark.parametrize("shell", SHELLS)
def test_a_long_list_of_processes_is_read_to_its_end(
    shell: str, tree: Path, tmp_path: Path
) -> None:
    """Of 400 kB, more than an argument of a program may have; mksh has no printf of its own."""
    tools = tmp_path / "bin"
    tools.mkdir()
    own = subprocess.Popen(["sleep", "60"], env={**os.environ, "FLEET_SYSROOT": str(tree)})
    try:
        (tools / "ps").write_text(
            "#!/bin/sh\necho PID USER ELAPSED COMMAND\n"
            "yes '1 root 00:01 /usr/bin/java -cp a.jar:b.jar:c.jar' | head -n 8000\n"
            f"echo {own.pid} root 00:01 genie-t2t-run -c genie_config.json\n"
        )
        (tools / "ps").chmod(0o755)
        path = f"{tools}:{os.environ['PATH']}"
        found = seen(answer(shell, tree, tmp_path / "base", PATH=path), HOST)
        (busy,) = [one for one in every(found) if one.id == "busy"]
        assert busy.facts == {"device.busy": "yes"}
        assert "genie-t2t-run" in busy.output
    finally:
        own.kill()
        own.wait()


def test_an_answer_that_was_cut_is_an_error() -> None:
    with pytest.raises(DeviceError):
        seen("fleet-facts 1\nhostname\tx\n", HOST)


def test_a_check_that_crashes_is_a_result(monkeypatch: pytest.MonkeyPatch, tree: Path,
                                          tmp_path: Path) -> None:  # fmt: skip
    found = seen(answer("dash", tree, tmp_path / "base"), HOST)

    def boom(_: Seen) -> list[Check]:
        raise RuntimeError("broken check")

    broken = type(LOOKS[0])("disk", "os", boom)
    monkeypatch.setattr("fleet.doctor.checks.LOOKS", (broken, *LOOKS))
    checks = list(every(found))
    assert checks[0].status == "unknown"
    assert "RuntimeError: broken check" in checks[0].text
    assert len(checks) > 10


class Fake:
    """A session whose device gave `text`; nothing else is asked of it."""

    host = HOST
    identity = "host-key none"

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self, *_: object, **__: object) -> Result:
        return Result(0, self.text.encode(), b"", 0.1)


BOARD = (
    "fleet-facts 1",
    "machine\taarch64",
    "libc\tglibc 2.39",
    "soc_id\t676",
    "id\tuid=1000(ubuntu) gid=1000(ubuntu) groups=1000(ubuntu),5(fastrpc)",
    "node\t/dev/fastrpc-cdsp",
    "node\t/dev/dma_heap/system",
    "modes\t660 root fastrpc fastrpc-cdsp\x1f660 root fastrpc dma_heap/system",
    "open\t/dev/fastrpc-cdsp\tok",
    "open\t/dev/dma_heap/system\tok",
    "libcdsprpc\t/usr/lib/libcdsprpc.so",
    "remoteproc\tcdsp\trunning",
    "disk_free_kb\t100000000",
    "disk_writable\tyes",
    "journal\topen_device_node failed for domain ID 3 (errno 13, Permission denied)",
    "end",
)


def test_the_journal_speaks_only_where_something_is_broken() -> None:
    """Its lines may be from before the repair, so they count less than what is seen now."""
    text = "\n".join(BOARD)
    healthy, _ = judge(Fake(text), Round())  # type: ignore[arg-type]
    assert healthy.verdict == "could-not-check", [to_plain(one) for one in healthy.checks]
    assert healthy.causes == ()
    lost = text.replace("fastrpc-cdsp\tok", "fastrpc-cdsp\tENXIO")
    sick, _ = judge(Fake(lost), Round())  # type: ignore[arg-type]
    assert sick.causes[0].cause.id == "fastrpc-node-missing"
    old = text.replace("remoteproc\tcdsp\trunning", "remoteproc\tcdsp\toffline")
    stopped, _ = judge(Fake(old), Round())  # type: ignore[arg-type]
    ids = [one.cause.id for one in stopped.causes]
    assert ids[0] == "cdsp-not-running"
    assert "fastrpc-node-permission" in ids
    assert stopped.causes[0].confidence > 0.6


def _fixes(node: str, groups: str) -> list[str]:
    """Commands for a node that refuses: `node` is its mode, owner and group."""
    lines = "\n".join(BOARD).replace("cdsp\tok", "cdsp\tEACCES")
    lines = lines.replace("660 root fastrpc fastrpc-cdsp", f"{node} fastrpc-cdsp")
    lines = lines.replace("5(fastrpc)", groups).replace(
        "\nend", f"\nid_db\tuid=1000 gid=1000 groups={groups}\nend"
    )
    found = to_plain(judge(Fake(lines), Round())[0])  # type: ignore[arg-type]
    assert found["causes"][0]["id"] == "fastrpc-node-permission"
    return [fix["command"] for fix in found["causes"][0]["fix"]]


@pytest.mark.parametrize(
    ("node", "groups", "first"),
    [
        ("600 root root", "5(fastrpc)", "udevadm trigger"),
        ("600 root fastrpc", "5(fastrpc)", "udevadm trigger"),
        ("600 root root", "27(sudo)", "usermod"),
        ("660 root fastrpc", "27(sudo)", "usermod"),
        ("660 root render", "5(fastrpc)", "usermod"),
    ],
)
def test_nobody_is_told_to_join_a_group_that_he_is_in(node: str, groups: str, first: str) -> None:
    commands = _fixes(node, groups)
    assert first in commands[0]
    assert any("usermod" in one for one in commands) is (first == "usermod")


def test_what_a_device_says_is_not_obeyed() -> None:
    text = "\n".join(BOARD).replace(
        "660 root fastrpc fastrpc-cdsp", "660 ro\x1b]0;owned\x07ot fast\x1b[31mrpc fastrpc-cdsp"
    )
    found, _ = judge(Fake(text.replace("cdsp\tok", "cdsp\tEACCES")), Round())  # type: ignore[arg-type]
    shown = json.dumps(to_plain(found))
    assert "fastrpc-node-permission" in shown
    assert "\\u001b" not in shown
    assert "owned" not in shown


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("glibc 2.39", "glibc 2.31", "glibc-too-old"),
        ("glibc 2.39", "musl 1.2.5", "glibc-too-old"),
        ("remoteproc\tcdsp\trunning", "remoteproc\tcdsp\tcrashed", "dsp-crash-ssr"),
        ("end", "container\t/.dockerenv\nend", "container-no-device"),
    ],
)
def test_what_a_lab_board_cannot_show(old: str, new: str, cause: str, tmp_path: Path) -> None:
    """Another C library, a crashed DSP and a container, as the probe would say them."""
    elf = f"elf\t/opt/npu/libQnnHtp.so\t9000\t{ARM_ELF}\tv2.51.0.260929181845"
    hand = f"folder\t/opt/npu\tthere\n{elf}"
    lines = "\n".join(BOARD).replace("\nend", f"\n{hand}\nend").replace(old, new)
    if cause == "container-no-device":
        lines = lines.replace("fastrpc-cdsp\tok", "fastrpc-cdsp\tENOENT").replace(
            "660 root fastrpc fastrpc-cdsp\x1f", ""
        )
    found, _ = judge(Fake(lines), Round(session=False))  # type: ignore[arg-type]
    assert cause == found.causes[0].cause.id, [
        (one.cause.id, one.confidence) for one in found.causes
    ]


def lie(rng: random.Random, text: str) -> str:
    """The answer with lines cut, doubled, mixed and filled with rubbish."""
    lines = text.split("\n")
    for _ in range(rng.randrange(1, 15)):
        at = rng.randrange(1, len(lines) - 1)
        match rng.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines[at] = lines[at][: rng.randrange(1 + len(lines[at]))]
            case 2:
                lines.insert(at, rng.choice(lines))
            case 3:
                lines[at] = lines[at].replace("\t", rng.choice(["\t\t", " ", "\x1f", ""]), 1)
            case 4:
                key = rng.choice(
                    ["elf", "release", "manifest", "context", "json", "sizes", "mount"]
                )
                lines.insert(at, f"{key}\t{rng.randbytes(12).hex()}\t-1\t\x1b[2J")
            case _:
                lines[at] += "\x1f" + chr(rng.randrange(1, 0x3000))
        if len(lines) < 3:
            break
    if "fleet-facts 1" not in lines:
        lines.insert(0, "fleet-facts 1")
    return "\n".join([*lines, "end"])


def survive(rng: random.Random, text: str) -> None:
    try:
        found = seen(lie(rng, text), HOST)
    except DeviceError:
        return
    for check in every(found):
        assert check.status in {"ok", "warn", "bad", "unknown"}
        assert "the check failed" not in check.text, check.text


def whole(tree: Path, tmp_path: Path) -> str:
    base = tmp_path / "base"
    release(base)
    hand = tmp_path / "hand"
    hand.mkdir()
    (hand / "libQnnHtp.so").write_bytes(b"\x7fELF\x02" + bytes(100) + b"v2.47.0.260601114230\0")
    (hand / "model.bin").write_bytes(b"v2.47.0.260601114230\0soc_type=QCS9100;arch=73;")
    (hand / "genie_config.json").write_text('{"dialog": {"type": "basic", "path": 7}}')
    return answer("dash", tree, base, folders=str(hand))


def test_lying_answers(tree: Path, tmp_path: Path) -> None:
    """2,000 here, 20,000 in the slow tier."""
    text, rng = whole(tree, tmp_path), random.Random(7)
    for _ in range(2000):
        survive(rng, text)


@pytest.mark.slow
def test_twenty_thousand_lying_answers(tree: Path, tmp_path: Path) -> None:
    text, rng = whole(tree, tmp_path), random.Random(8)
    for _ in range(20_000):
        survive(rng, text)


def test_only_blobs_of_the_release_that_are_younger_than_its_seal_are_hashed(
    tree: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    release(base)
    seal = base / "meta" / "tiny" / "0123456789abcdef" / ".installed"
    mine, foreign = base / "store" / ("ab" * 32), base / "store" / ("cd" * 32)
    foreign.write_bytes(b"of another release, which came later")
    later = seal.stat().st_mtime + 100
    os.utime(foreign, (later, later))
    assert seen(answer("dash", tree, base), HOST).hashes == {}
    os.utime(mine, (later, later))
    found = seen(answer("dash", tree, base), HOST).hashes
    assert found == {"ab" * 32: hashlib.sha256(b"content").hexdigest()}


@pytest.mark.parametrize(
    ("place", "build", "word"),
    [
        ("usr/lib/libQnnHtp.so", "v2.40.0.251030114326", "second"),
        ("usr/lib/libQnnHtp.so", "", "second"),
        ("usr/lib/libQnnHtp.so", "v2.51.0.260929181845", "second"),
        ("usr/lib/rfsa/adsp/libQnnHtpV73Skel.so", "v2.40.0.251030114326", "second"),
        ("vendor/lib64/libQnnHtpV73Stub.so", "v2.40.0.251030114326", ""),
        ("", "", "none"),
    ],
)
def test_a_second_qnn_on_the_system_is_a_finding(
    place: str, build: str, word: str, tree: Path, tmp_path: Path
) -> None:
    """As in the plan; the older libraries in a firmware are usual beside a release of fleet."""
    base = tmp_path / "base"
    release(base)
    if place:
        path = tree / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(ARM_ELF) + build.encode() + b"\0" * 9)
    found = seen(answer("dash", tree, base), HOST)
    (check,) = [one for one in every(found) if one.id == "elsewhere"]
    assert check.status == (OK if word == "none" else WARN)
    assert check.facts.get("runtime.system", "") == word
    if word == "second":
        assert f"/{place}" in check.output
        assert (build or "unknown build") in check.output
        causes = [w.cause.id for w in _of_checks([check], failing=False)]
        assert causes == ["mixed-install"]
