"""True logs of Qualcomm's libraries, most of arm64 ones under qemu-user: each with its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.triage.triage import triage

DATA = Path(__file__).parent / "data" / "qairt"
NODE = {"fastrpc-node-missing", "fastrpc-node-permission"}
# What was wrong on the machine that wrote the log.
FIRST = {
    "arm64_a0_no_ldpath.log": "stub-not-found",
    "arm64_a1_ldpath_nocdsprpc.log": "fastrpc-userspace-missing",
    "arm64_b5_stub_missing.log": "stub-not-found",
    "arm64_c2_only_libcdsprpc_so_1.log": "fastrpc-userspace-missing",
    "arm64_c3_soc_sm8550_unsupported_on_linux_build.log": "soc-unknown",
    "x86_f_corrupt_meta.log": "context-binary-corrupt",
    "x86_f_empty.log": "context-binary-corrupt",
    "x86_f_missing.log": "bundle-incomplete",
    "x86_f_zero.log": "context-binary-corrupt",
    "x86_fx_BADSOC.log": "soc-unknown",
    "x86_fx_GPU.log": "gpu-driver",
    "x86_fx_MISSINGBE.log": "host-lib-missing",
    "x86_vm_new_on_old.log": "qairt-vs-context-version",
}
WITH_SYSLOG = {
    "arm64_b1_cdsprpc_nodev": "fastrpc-node-missing",
    "arm64_b2_dev_rootonly_user": "fastrpc-node-permission",
    "arm64_b3_dev_fake_ok": "firmware-shell-mismatch",
    "arm64_d2_genie_nodev": "fastrpc-node-missing",
}


def text(name: str) -> str:
    return (DATA / name).read_text("utf-8", "replace")


def causes(log: str) -> list[str]:
    return [one.cause.id for one in triage(log).causes]


@pytest.mark.parametrize("name", FIRST)
def test_the_log_tells_its_cause(name: str) -> None:
    assert causes(text(name))[0] == FIRST[name]


@pytest.mark.parametrize("name", WITH_SYSLOG)
def test_with_the_words_of_fastrpc_it_is_exact(name: str) -> None:
    assert causes(text(f"{name}.log") + text(f"{name}.syslog"))[0] == WITH_SYSLOG[name]


@pytest.mark.parametrize("name", ["arm64_b1_cdsprpc_nodev.log", "arm64_b2_dev_rootonly_user.log"])
def test_two_causes_with_the_same_log_are_both_named(name: str) -> None:
    """No node and no permission: QNN says the same; each names the command that tells."""
    found = triage(text(name)).causes
    assert {found[0].cause.id, found[1].cause.id} == NODE
    assert found[0].confidence < 0.6
    told = {twin.cause for twin in found[0].twins}
    assert found[1].cause.id in told
    assert all(twin.command for twin in found[0].twins)


@pytest.mark.parametrize("name", [*FIRST, *(f"{one}.log" for one in WITH_SYSLOG)])
def test_the_last_line_is_not_the_evidence(name: str) -> None:
    first = triage(text(name)).causes[0]
    assert not first.summary
    assert "Failed to parse platform config: 14001" not in first.evidence[0].text


def test_evidence_has_the_line_of_the_log() -> None:
    log = text("arm64_a1_ldpath_nocdsprpc.log")
    for evidence in triage(log).causes[0].evidence:
        assert evidence.text in log.split("\n")[evidence.line - 1]


def test_x86_library_on_arm_is_at_least_named() -> None:
    """The loader says `No such file` for a file that exists: the words of a missing one."""
    log = text("arm64_b6_x86_lib_on_arm.log")
    first = triage(log).causes[0]
    assert first.cause.id == "host-lib-missing"
    assert "abi-mismatch" in {twin.cause for twin in first.twins}


ORT_2 = "arm64_ort_dev_rootonly_user.log"  # onnxruntime 1.31.1 with the plugin 2.7.0
LISTED = "ORT Available Providers: ['AzureExecutionProvider', 'CPUExecutionProvider']\n"


def test_a_plugin_that_was_loaded_is_not_missing_from_the_list() -> None:
    """The list names what onnxruntime was built with (microsoft/onnxruntime#27832)."""
    assert "ep-missing" not in causes(text(ORT_2) + LISTED)
    assert causes("onnxruntime-qnn\n" + LISTED) == ["ep-missing"]


@pytest.mark.parametrize(
    "line",
    [
        # Both with onnxruntime-qnn 2.7.0, the second with onnxruntime 1.20.1 and 1.22.0 beside it.
        "ModuleNotFoundError: No module named 'onnxruntime'",
        "module 'onnxruntime' has no attribute 'register_execution_provider_library'",
        # https://github.com/microsoft/onnxruntime/issues/27695
        "Failed to load execution provider library: undefined symbol: CreateEpFactories",
        "ValueError: Unknown Provider Type: QNNExecutionProvider",
    ],
)
def test_a_missing_provider_is_told_of_both_generations(line: str) -> None:
    first = triage(line, platform="windows").causes[0]
    assert first.cause.id == "ep-missing"
    plugin, whole = (fix.command for fix in first.fixes[:2])
    assert "install" in plugin
    assert "uninstall" not in plugin, "the plugin needs onnxruntime beside it"
    assert "onnxruntime-qnn<2" in whole
    assert "get_ep_devices" in first.cause.verify
    for fix in triage(line, platform="linux").causes[0].fixes:
        assert "uninstall" not in fix.command, "version 1 has no wheel for Linux"
