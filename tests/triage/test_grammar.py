"""Slots: any library, processor, path or version of a line is named, not those of a list."""

from __future__ import annotations

import pytest

from fleet.model.slots import filled
from fleet.triage.grammar import captured, expanded
from fleet.triage.triage import triage


def first(log: str) -> tuple[str, str]:
    found = triage(log).causes
    return (found[0].cause.id, found[0].title) if found else ("", "")


LIBRARIES = pytest.mark.parametrize(
    "library", ["libllama.so", "libomp.so", "libfoo-2.1.so.3", "libc++_x.so"]
)


@LIBRARIES
@pytest.mark.parametrize(
    "line",
    [
        'CANNOT LINK EXECUTABLE "./run": library "{}" not found: needed by main executable',
        'qnn: java.lang.UnsatisfiedLinkError: dlopen failed: library "{}" not found',
        "qcs9075:~# ./run: error while loading shared libraries: {}: cannot open shared object",
    ],
)
def test_any_library_is_named(library: str, line: str) -> None:
    cause, title = first(line.format(library))
    assert cause == "host-lib-missing"
    assert title == f"{library} is not found"


@LIBRARIES
@pytest.mark.parametrize(
    "line",
    [
        "./run: error while loading shared libraries: {}: cannot open shared object file",
        'java.lang.UnsatisfiedLinkError: dlopen failed: library "{}" not found',
        "\t{} => not found",
        "ImportError: {}: cannot open shared object file: No such file or directory",
    ],
)
def test_a_library_of_a_machine_that_nobody_names_is_understood(library: str, line: str) -> None:
    """Every Linux machine has such a line: it is read, and asked about."""
    found = triage(line.format(library))
    assert found.causes[0].title == f"{library} is not found"
    assert found.causes[0].confidence < 0.5
    assert "--platform" in found.notes[0]
    for told in ({"of_device": True}, {"platform": "linux"}):
        named = triage(line.format(library), **told).causes[0]
        assert (named.cause.id, named.title) == ("host-lib-missing", f"{library} is not found")


@pytest.mark.parametrize("processor", ["gpdsp0", "gpdsp1", "adsp", "cdsp", "cdsp1"])
def test_the_processor_is_the_one_of_the_line(processor: str) -> None:
    file = f"qcom/sa8775p/{processor}.mbn"
    cause, title = first(
        f"remoteproc remoteproc3: Direct firmware load for {file} failed with error -2"
    )
    assert cause == "firmware-missing"
    assert processor in title.split()
    assert first(f"remoteproc remoteproc3: crash detected in {processor}: type watchdog")[1] == (
        f"{processor} crashed and was restarted"
    )


def test_another_processor_is_not_the_compute_dsp() -> None:
    log = "remoteproc remoteproc3: can't start rproc gpdsp0: -110\n"
    found = triage(log)
    assert "cdsp-not-running" not in [cause.cause.id for cause in found.causes]
    assert found.causes[0].cause.id == "other-processor"
    assert "gpdsp0" in found.causes[0].title
    assert first(log.replace("gpdsp0", "cdsp0"))[0] == "cdsp-not-running"


@pytest.mark.parametrize(
    ("line", "cause", "path"),
    [
        ("adb: failed to copy 'a' to '/vendor/x/a': remote secure_mkdirs failed: Permission denied",
         "storage-read-only", "/vendor/x/a"),
        ("scp: /opt/models/a.bin: Permission denied", "storage-read-only", "/opt/models/a.bin"),
        ('scp: dest open "/opt/models/a.bin": Permission denied', "storage-read-only",
         "/opt/models/a.bin"),
    ],
)  # fmt: skip
def test_a_push_names_its_path(line: str, cause: str, path: str) -> None:
    assert first(line) == (cause, f"{path} cannot be written")


def test_the_version_that_is_needed_is_named() -> None:
    log = "./run: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./run)"
    assert "2.38" in first(f"$ genie-t2t-run -c x.json\n{log}")[1]
    assert "2.38" in triage(log).causes[0].title


@pytest.mark.parametrize(
    "log",
    [
        "docker: write /var/lib/docker/tmp/x: no space left on device\n",
        "kubectl: node worker-3 offline, drained\n",
        "ImportError: libcudart.so.11.0: cannot open shared object file\n",
    ],
)
def test_what_is_no_deployment_has_no_cause(log: str) -> None:
    found = triage(log)
    assert (found.verdict, found.causes) == ("not-recognised", ())
    assert "not a deployment" in found.notes[0] or "other software" in found.notes[0]


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("qnn-onnx-converter: error: Op type Foo not supported\n", "unsupported-op"),
        (
            "qti/aisw/converters: KeyError: 'No translation registered for op type onnx_einsum.'\n",
            "unsupported-op",
        ),
    ],
)
def test_what_a_converter_says_of_the_model_is_said_as_that(log: str, cause: str) -> None:
    found = triage("qnn-onnx-converter --input_network m.onnx\n" + log)
    assert found.causes[0].cause.id == cause
    assert found.causes[0].confidence < 0.5
    assert "not a deployment" in found.notes[0]


def test_a_build_names_what_it_misses() -> None:
    log = "[ 12%] Building CXX object\nld: error: cannot find -lQnnHtp\nninja: build stopped\n"
    found = triage(log)
    assert found.causes[0].cause.id == "build-dependency-missing"
    assert "QnnHtp" in found.causes[0].title
    assert found.causes[0].confidence < 0.5
    assert "not a deployment" in found.notes[0]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (904, "stub-not-found"),
        (311, "model-format"),
        (911, "dsp-crash-ssr"),
        (1503, "qairt-vs-context-version"),
        (1108, "op-package"),
        (809, "gpu-driver"),
        (106, "input-mismatch"),
        (1002, "unsupported-op"),
    ],
)
def test_a_code_of_snpe_is_read_by_its_table(code: int, cause: str) -> None:
    """DlError.h of the SDK; the wording beside it differs from version to version."""
    found = triage(f"SNPE build failed: error_code={code}; error_message=x; error_component=Y\n")
    assert found.causes[0].cause.id == cause


@pytest.mark.parametrize("log", ["pi@raspberrypi ~ $ ", "[0 Mali-G52] queueC=0[2]\n", "CUDA "])
def test_a_runtime_on_other_hardware_is_about_that(log: str) -> None:
    assert triage(log + "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n").causes == ()


def test_a_guess_without_context_is_no_more_than_that() -> None:
    found = triage("write error: No space left on device\n")
    assert found.causes[0].cause.id == "disk-full"
    assert found.causes[0].confidence < 0.5
    assert triage("scp: write: No space left on device\n").causes[0].confidence > 0.6


@pytest.mark.parametrize("word", ["$(reboot)", "`id`", "a;b", "a'b", 'a"b', "a&b", "-rf /"])
def test_no_slot_holds_what_a_shell_obeys(word: str) -> None:
    for slot in ("library", "path", "package", "address"):
        pattern = expanded("x {%s}" % slot)  # noqa: UP031 - braces
        for text in captured(pattern, f"x {word}.so /{word}").values():
            assert not set(text) & set("$`;'\"&|<> ")
            assert not text.startswith("-")


def test_texts_without_the_slot_say_it_in_words() -> None:
    assert filled("{library:a library} fails", {}) == "a library fails"
    assert filled("{library:a library} fails", {"library": "libx.so"}) == "libx.so fails"
    assert filled("awk '{print}' ${A:-b}", {}) == "awk '{print}' ${A:-b}"


@pytest.mark.parametrize(
    ("library", "user", "cause"),
    [
        ("/system/lib64/libyuv.so", "/apex/com.android.art/lib64/libnativeloader.so", ""),
        ("/vendor/lib64/libOpenCL.so", "/data/app/x/lib/arm64/libMNN_CL.so", "android-namespace"),
        ("/vendor/lib64/libcdsprpc.so", "libQnnHtpV79Stub.so", "android-namespace"),
    ],
)
def test_a_library_of_an_app_alone_is_no_fault_of_the_npu(
    library: str, user: str, cause: str
) -> None:
    found = triage(
        f'java.lang.UnsatisfiedLinkError: dlopen failed: library "{library}" needed or dlopened by '
        f'"{user}" is not accessible for the namespace "classloader-namespace"\n'
    )
    named = [one.cause.id for one in found.causes if one.confidence >= 0.5]
    assert named[:1] == ([cause] if cause else [])


@pytest.mark.parametrize(
    "line",
    [
        "[HTP_CACHE] No cache record in the DLC matches the target device. Creating a new record",
        "failed to load /data/local/tmp/libQnnHtp.so, fallback to libQnnHtp.so",
    ],
)
def test_a_line_that_says_how_it_goes_on_is_no_failure(line: str) -> None:
    assert triage(f"{line}\n").causes == ()


@pytest.mark.parametrize(
    ("pattern", "line", "slots"),
    [
        (
            "fatal error: {subject}",
            "fatal error: net/a.hpp: No such file",
            {"subject": "net/a.hpp"},
        ),
        ("No module named .{module}.", "No module named 'a_b.c.d'", {"module": "a_b"}),
    ],
)
def test_a_slot_is_what_a_command_takes(pattern: str, line: str, slots: dict[str, str]) -> None:
    assert captured(expanded(pattern), line) == slots
