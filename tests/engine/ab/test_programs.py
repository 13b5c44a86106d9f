"""`fleet ab` of Genie and GenieX on one bundle, on a board behind a real sshd.

Genie is the real libGenie on the HTP emulator. GenieX is a stand-in that prints what geniex-bench
prints: JSON of schema version 6, and a text as in its accuracy mode.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.engine.run.ab.journal import AbJournal, Asked
from fleet.profiles.compare.sequential import Answer
from tests.support_runtime import X86, cached_runtime

from ..conftest import Bench
from .test_measuring import gone_on

pytestmark = pytest.mark.qairt
STANDIN = """#!/bin/sh
echo "stand-in for geniex-bench" >&2
while [ $# -gt 0 ]; do
  case $1 in --output-json) out=$2 ;; esac
  shift
done
echo "[gen ] a stand-in says this"
awk -v seed="$(($(od -An -N4 -tu4 /dev/urandom) % 2147483647))" -v rate={rate} 'BEGIN {{
  srand(seed); rate *= 1 + 0.02 * rand()
  printf "{{\\"schema_version\\": 6, \\"plugin\\": \\"qairt\\", \\"device\\": \\"npu\\", \\"agg\\": {{}},"
  printf " \\"runs\\": [{{\\"prompt_tokens\\": 128, \\"gen_tokens\\": 26, \\"ttft_us\\": 4000,"
  printf " \\"decode_tps\\": %f, \\"prefill_tps\\": 32000, \\"stop_reason\\": \\"eos\\"}}]}}\\n", rate
}}' > "$out"
"""  # noqa: E501 - as it prints


def standin(folder: Path, rate: float) -> Path:
    """A folder in the layout of a geniex-bench archive, with the QAIRT of the emulator in it."""
    qairt = folder / "lib" / "qairt"
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "geniex-bench"
    program.write_text(STANDIN.format(rate=rate))
    program.chmod(0o755)
    library = cached_runtime(target=X86).root / "lib" / X86
    shutil.copytree(library, qairt / "htp-files", copy_function=os.link)
    (qairt / "libgeniex_plugin.so").write_bytes(b"")
    return program


def playbook(folder: Path, bundle: Path, **run: object) -> Path:
    run = {"prompt": "What is fleet?", "max_tokens": 40, "sample": "off", **run}
    text = {"name": "llm", "bundle": {"path": str(bundle), "kind": "genie"}, "run": run}
    folder.mkdir(exist_ok=True)
    (folder / "playbook.yaml").write_text(json.dumps(text))
    return folder / "playbook.yaml"


def test_genie_against_a_stand_in_of_geniex(
    bench: Bench, own_bundle: Callable[[], Path], tmp_path: Path
) -> None:
    bundle = own_bundle()
    (bundle / "metadata.json").write_text("{}")
    program = standin(tmp_path / "geniex", 0.1)
    a = playbook(tmp_path / "a", bundle, runner="genie")
    b = playbook(tmp_path / "b", bundle, runner="geniex", program=str(program))
    asked = Asked(str(a), str(b), "", "", (bench.host.name,), {})
    journal = AbJournal.begin(bench.runs, "ab", asked)
    result = gone_on(bench, journal)
    (judged,) = result.answer.answers
    assert (judged.metric, judged.decision.answer) == ("decode_tps", Answer.FAIL)
    (pair, *_) = journal.pairs(bench.host.name)
    assert (pair.a.runner, pair.b.runner) == ("genie", "geniex")
    assert pair.a.emulated
    assert pair.b.emulated
    assert pair.a.release != pair.b.release
    (differences,) = [line for line in result.answer.conditions if line.startswith("runner: ")]
    for words in ("A genie, B geniex", "multiple of 128 tokens", "top-p 1", "chat template"):
        assert words in differences
    journal.close()
