"""From a bare board to a verified session in one deploy; the second does nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.config.playbook import load_playbook
from fleet.model.events import StepStarted
from fleet.model.system import SystemSpec, WantedFile, WantedUnit

from .conftest import ROOT, Bare

pytestmark = pytest.mark.qairt
Make = Callable[..., Bare]


def steps(board: Bare) -> list[str]:
    return [
        one.text for one in board.events if isinstance(one, StepStarted) and one.step == "system"
    ]


def test_bare_board_to_verified_session_and_then_nothing(bare: Make) -> None:
    board = bare()
    playbook = replace(board.playbook, system=SystemSpec(fastrpc="auto"))
    planned = [one.describe() for one in board.plan(playbook).plan.system_steps]  # type: ignore[union-attr]
    result = board.deploy(playbook)
    assert result.error is None, result.error
    assert result.outcome == "changed"
    assert steps(board) == planned
    assert [record.counts for record in result.records if not record.warmup] == [True] * 5
    assert all(record.emulated for record in result.records)
    again = board.deploy(playbook)
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)
    assert again.round_trips <= 3


@pytest.mark.parametrize(
    ("profile", "word", "packages", "group"),
    [
        ("bare-evk", "auto", ["qcom-fastrpc1", "acl"], "fastrpc"),
        ("bare-evk-nopasswd", "auto", ["qcom-fastrpc1", "acl"], "fastrpc"),
        ("bare-rb3", "debian", ["libfastrpc1", "fastrpc-support"], "fastrpc"),
        ("bare-radxa", "auto", ["fastrpc", "libcdsprpc1"], "fastrpc"),
    ],
)
def test_each_packaging_from_what_the_device_shows(
    bare: Make, profile: str, word: str, packages: list[str], group: str
) -> None:
    board = bare(profile)
    done = board.provision(SystemSpec(fastrpc=word))
    assert done.left.system_steps == ()
    installed = board.root("dpkg-query -W -f '${Package} '")
    assert all(f" {name} " in f" {installed}" for name in packages)
    facts = done.left.facts
    closed = [node.path for node in facts.nodes if "cdsp" in node.path and node.open_error]
    withheld = ["/dev/fastrpc-cdsp-secure"] if profile in {"bare-radxa", "bare-rb3"} else []
    assert closed == withheld, "what its rules leave to daemons stays so"
    assert facts.libcdsprpc_unversioned
    assert group in {node.group for node in facts.nodes}


def test_lists_that_were_never_read_are_said_not_guessed(bare: Make) -> None:
    board = bare("bare-rb3", soc="QCS6490")
    (finding,) = [
        one
        for one in board.plan(board.spec(fastrpc="auto")).plan.findings  # type: ignore[union-attr]
        if one.rule == "fastrpc-packages"
    ]
    assert finding.refuses
    assert "has no package lists yet" in finding.message
    assert "fastrpc: debian" in finding.cure


def test_a_yocto_board_where_root_logs_in_needs_nothing(bare: Make) -> None:
    board = bare("bare-qcom-linux")
    result = board.deploy(board.spec(fastrpc="auto"))
    assert result.error is None, result.error
    assert steps(board) == []


def test_a_library_without_its_plain_name_is_linked(bare: Make) -> None:
    board = bare("bare-qcom-linux")
    board.root("rm /usr/lib/libcdsprpc.so")
    result = board.deploy(board.spec(fastrpc="auto"))
    assert result.error is None, result.error
    assert steps(board) == [
        "link libcdsprpc.so -> /usr/lib/libcdsprpc.so.1 in /root/fleet/shim",
    ]
    assert board.deploy(board.spec(fastrpc="auto")).outcome == "unchanged"


def test_packages_on_a_board_without_a_package_manager_are_refused(bare: Make) -> None:
    board = bare("bare-qcom-linux")
    before = board.tree()
    result = board.deploy(board.spec(packages=("acl",)))
    assert result.outcome == "refused"
    assert "neither apt nor opkg" in result.text
    assert board.tree() == before


def test_a_repository_is_added_with_its_key(bare: Make, tmp_path: Path) -> None:
    board = bare("bare-evk-norepo")
    path = _with_repository(board, tmp_path, fingerprint=_fingerprint(board))
    playbook = replace(load_playbook(path), run=None)
    result = board.deploy(playbook)
    assert result.error is None, result.error
    assert "qcom-fastrpc1" in board.root("dpkg-query -W")
    assert "Signed-By: /etc/apt/keyrings/fleet-qcom.asc" in board.root(
        "cat /etc/apt/sources.list.d/fleet-qcom.sources"
    )
    assert board.deploy(playbook).outcome == "unchanged"


def test_a_key_with_another_fingerprint_is_an_error_in_the_playbook(
    bare: Make, tmp_path: Path
) -> None:
    from fleet.model.errors import PlaybookError

    path = _with_repository(bare("bare-evk-norepo"), tmp_path, fingerprint="A" * 40)
    with pytest.raises(PlaybookError, match=r"playbook.yaml:\d+:\d+: .*`fingerprint:` is A{40}$"):
        load_playbook(path)


def test_a_repository_with_a_foreign_key_is_refused_by_apt(bare: Make, tmp_path: Path) -> None:
    import pysequoia

    board = bare("bare-evk-norepo")
    other = pysequoia.Tsk.generate("other <other@localhost>").extract_certificate()
    path = _with_repository(board, tmp_path, fingerprint=other.fingerprint, key=str(other))
    result = board.deploy(replace(load_playbook(path), run=None))
    assert result.outcome == "failed"
    assert "NO_PUBKEY" in result.text or "not signed" in result.text
    assert "qcom-fastrpc1" not in board.root("dpkg-query -W")


def _fingerprint(board: Bare) -> str:
    import pysequoia

    text = board.root("cat /srv/lab-apt/key.asc")
    return str(pysequoia.Cert.from_bytes(text.encode()).fingerprint)


def _with_repository(board: Bare, folder: Path, *, fingerprint: str, key: str = "") -> Path:
    (folder / "key.asc").write_text(key or board.root("cat /srv/lab-apt/key.asc"))
    path = folder / "playbook.yaml"
    path.write_text(
        f"name: tiny\nbundle: {ROOT / 'assets' / 'tiny-genie'}\nfastrpc: auto\nsystem:\n"
        "  packages: [libatomic1]\n  repositories:\n    - name: qcom\n"
        "      uri: file:/srv/lab-apt/ubuntu-qcom-iot/qcom-ppa\n      suite: ./\n"
        f"      key: key.asc\n      fingerprint: {fingerprint}\n"
    )
    return path


def test_a_folder_of_debs_for_a_board_without_any_source(bare: Make, tmp_path: Path) -> None:
    board = bare("bare-evk-norepo")
    tree = Path(f"/proc/{board.lab.board('lab001').pid}/root/srv/lab-apt/ubuntu-qcom-iot/qcom-ppa")
    debs = tmp_path / "debs"
    debs.mkdir()
    for name in ("qcom-fastrpc1", "acl", "libatomic1"):
        (one,) = tree.glob(f"{name}_*.deb")
        (debs / one.name).write_bytes(one.read_bytes())
    path = tmp_path / "playbook.yaml"
    path.write_text(
        f"name: tiny\nbundle: {ROOT / 'assets' / 'tiny-genie'}\nfastrpc: auto\n"
        "system: {debs: debs}\n"
    )
    playbook = replace(load_playbook(path), run=None)
    result = board.deploy(playbook)
    assert result.error is None, result.error
    assert board.root("dpkg-query -W -f '${Package} ' qcom-fastrpc1 acl libatomic1").split() == [
        "acl",
        "libatomic1",
        "qcom-fastrpc1",
    ]
    again = board.deploy(playbook)
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)


def test_files_rules_units_and_loader_paths(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.root("apt-get -q update && apt-get -y -q install qcom-fastrpc1 libatomic1")
    playbook = board.spec(
        files=(WantedFile("/etc/npu.conf", b"x: $(id); 'y'\n"),),
        rules={"70-npu.rules": 'KERNEL=="fastrpc-cdsp", MODE="0666"\n'},
        units=(WantedUnit("cdsprpcd.service", enabled=True, running=True),),
        library_paths={"npu.conf": ("/opt/npu/lib",)},
        members={"video": ("",)},
    )
    result = board.deploy(playbook)
    assert result.error is None, result.error
    assert board.root("cat /etc/npu.conf") == "x: $(id); 'y'\n"
    assert board.root("stat -c %a /dev/fastrpc-cdsp").strip() == "666"
    assert board.root("systemctl is-active cdsprpcd; systemctl is-enabled cdsprpcd").split() == [
        "active",
        "enabled",
    ]
    assert board.root("cat /etc/ld.so.conf.d/npu.conf") == "/opt/npu/lib\n"
    assert "video" in board.root("id -Gn ubuntu")
    assert board.deploy(playbook).outcome == "unchanged"


def test_an_old_rule_of_an_administrator_is_outranked(bare: Make) -> None:
    board = bare("bare-evk")
    board.lab.fault("lab001", "old-rule")
    playbook = board.spec(fastrpc="auto", packages=("libatomic1",))
    result = board.deploy(playbook)
    assert result.error is None, result.error
    assert "99-fleet-fastrpc.rules" in board.root("ls /etc/udev/rules.d")
    assert board.deploy(playbook).outcome == "unchanged"


def test_distribution_qnn_is_reported_and_removed_only_when_asked(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.lab.fault("lab001", "foreign-qnn")
    playbook = board.spec(fastrpc="auto", packages=("libatomic1",))
    result = board.deploy(playbook)
    assert result.error is None, result.error
    rules = {one.rule: one for one in result.plan.findings}  # type: ignore[union-attr]
    assert "libqnn1" in rules["mixed-qnn"].have
    assert "libQnnHtp.so" in rules["mixed-qnn"].have
    assert "libqnn1" in board.root("dpkg-query -W")
    gone = board.spec(fastrpc="auto", packages=("libatomic1",), distribution_qnn="remove")
    assert board.deploy(gone).outcome == "changed"
    assert "libqnn1" not in board.root(
        "dpkg-query -W -f '${Package} ${db:Status-Status}\\n' | grep ' installed'"
    )
    assert board.deploy(gone).outcome == "unchanged"


def test_an_interrupted_dpkg_is_ended_first(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.lab.fault("lab001", "broken-dpkg")
    result = board.deploy(board.spec(packages=("libatomic1", "acl")))
    assert result.error is None, result.error
    assert board.root("dpkg --audit") == ""


def test_a_package_that_no_source_has_fails_with_apts_words(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    result = board.deploy(board.spec(packages=("no-such-package", "libatomic1")))
    assert result.outcome == "failed"
    assert "no-such-package" in result.text
    assert "fleet undo" in result.error.hint  # type: ignore[union-attr]


def test_a_source_that_is_gone_fails_before_anything_else_is_changed(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    board.lab.fault("lab001", "repo-gone")
    before = board.tree()
    result = board.deploy(board.spec(fastrpc="auto", packages=("libatomic1",)))
    assert result.outcome == "failed"
    assert "/srv/lab-apt" in result.text
    assert board.tree() == before
    board.lab.heal("lab001", "repo-gone")


def test_only_the_system_without_a_release(bare: Make) -> None:
    board = bare("bare-evk-nopasswd")
    playbook = board.spec(fastrpc="auto", packages=("libatomic1",))
    (result,) = board.operation(playbook).provision()
    assert (result.outcome, result.error) == ("changed", None)
    assert "releases" not in board.root("ls /home/ubuntu/fleet")
    (again,) = board.operation(playbook).provision()
    assert (again.outcome, again.bytes_sent) == ("unchanged", 0)
    assert again.round_trips <= 3


def test_provision_without_a_wish_says_where_it_would_stand(bare: Make) -> None:
    from fleet.model.errors import InputError

    board = bare("bare-evk-nopasswd")
    with pytest.raises(InputError, match="neither `fastrpc:` nor `system:`"):
        board.operation(board.spec()).provision()


def test_a_packaging_without_its_source_is_refused_before_anything_is_touched(bare: Make) -> None:
    board = bare("bare-evk-norepo")
    before = board.tree()
    result = board.operation(board.spec(fastrpc="ubuntu-ppa")).provision()[0]
    assert result.outcome == "refused"
    hint = result.error.hint  # type: ignore[union-attr]
    assert "key to `system.repositories`" in hint
    assert hint.endswith("sudo add-apt-repository ppa:ubuntu-qcom-iot/qcom-ppa")
    assert board.tree() == before
