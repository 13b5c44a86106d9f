"""`fleet ab`, as it is typed, on a lab board: what it answers, with which exit code.

B is slowed by 15 %, equal, or fails in 15, 30 and 45 % of its runs; a budget that measures nothing,
a gate in the wrong direction, and a side that is edited before `--resume`. The programs are
stand-ins that say a rate of 10, or 8.5, with a noise of 1 %; all else is what ships. mawk clamps
seeds of 2^31 and more to one value, so the seed is a remainder.

Run: python -m benchmarks.ab_boards --trials 20 --kinds slower,equal
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from fleet.lab import Lab
from tests.runners.kits import gguf

PROGRAM = """#!/bin/sh
case $* in *"-n 4"*) fails={fails};; *) fails=0;; esac  # never the health probe
seed=$(($(od -An -N4 -tu4 /dev/urandom) % 2147483647))
awk -v seed=$seed -v rate={rate} -v fails=$fails 'BEGIN {{
  srand(seed); noise = 0
  if (rand() < fails) exit 1
  for (n = 0; n < 12; n++) noise += rand()
  print "[{{\\"devices\\": \\"HTP0\\", \\"backends\\": \\"HTP\\", \\"n_prompt\\": 0,"
  printf " \\"n_gen\\": 4, \\"avg_ts\\": %f}}]\\n", rate * (1 + 0.01 * (noise - 6))
}}'
# {name}
"""
PLAYBOOK = """
name: llama
bundle: {path: bundle, kind: llama.cpp}
run: {program: llama-bench, max_tokens: 4, sample: off}
"""


def playbook(folder: Path, rate: float, fails: float = 0) -> Path:
    """Write a playbook of its own, whose program says such a rate and fails so often."""
    (folder / "bundle").mkdir(parents=True)
    (folder / "bundle" / "model.gguf").write_bytes(gguf())
    program = PROGRAM.format(rate=rate, fails=fails, name=folder.name)
    (folder / "llama-bench").write_text(program)
    (folder / "playbook.yaml").write_text(PLAYBOOK)
    return folder / "playbook.yaml"


def fleet_ab(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of one `fleet ab`, and its last line of JSON."""
    argv = [sys.executable, "-m", "fleet", "ab", *words, "--offline", "--json"]
    done = subprocess.run(
        [*argv, "--output", str(folder / "runs")], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {}


def words_of(folder: Path, lab: Lab, b: Path, gate: str = "decode_tps<-5%") -> list[str]:
    """Return the arguments that compare A with this B."""
    return [str(folder / "a" / "playbook.yaml"), str(b), "-i", str(lab.inventory), "--gate", gate]


def measured(folder: Path, lab: Lab, kind: str) -> str:
    """Return what one comparison of this kind ends with."""
    b = folder / kind / "playbook.yaml"
    if kind == "wrong-direction":
        code, _ = fleet_ab(folder, *words_of(folder, lab, b, "decode_tps>+5%"))
        return f"exit code {code}"
    if kind == "no-pairs":
        code, said = fleet_ab(folder, *words_of(folder, lab, b), "--budget", "1ms")
        return f"exit code {code}, {said['rows'][0]['decision']['pairs']} pairs"
    if kind == "edited":
        code, said = fleet_ab(folder, *words_of(folder, lab, b), "--budget", "1ms")
        fleet_ab(folder, "--resume", said["ab"], "--budget", "8s")
        with b.with_name("llama-bench").open("a") as program:
            program.write("# edited\n")
        code, said = fleet_ab(folder, "--resume", said["ab"])
        return f"exit code {code} after an edit"
    code, said = fleet_ab(folder, *words_of(folder, lab, b))
    rows = [row["decision"]["answer"] for row in said["rows"]]
    failed = [f"B fails {one['b']} of {one['b_runs']}, {one['answer']}" for one in said["failures"]]
    return ", ".join([f"exit code {code}", *rows, *failed])


KINDS = {
    "slower": (8.5, 0), "equal": (10, 0), "no-pairs": (10, 0), "wrong-direction": (10, 0),
    "edited": (10, 0), "fails-15": (10, 0.15), "fails-30": (10, 0.30), "fails-45": (10, 0.45),
}  # fmt: skip


def main() -> None:
    """Print how often each answer came."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    kinds = given.kinds.split(",")
    ends: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        playbook(folder / "a", 10)
        for kind in kinds:
            playbook(folder / kind, *KINDS[kind])
        with Lab.up(folder / "lab", count=1, base_port=0) as lab:
            for trial in range(given.trials):
                for kind in kinds:
                    end = measured(folder, lab, kind)
                    ends[kind][end] += 1
                    print(f"{trial + 1} {kind}: {end}", flush=True)
    for kind, counts in ends.items():
        print(f"{kind}: {dict(counts)}")


if __name__ == "__main__":
    main()
