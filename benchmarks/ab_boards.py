"""`fleet ab`, as it is typed, on a lab board: B slowed by 15 % in one half of the trials.

The programs are stand-ins that say a rate of 10, or 8.5, with a noise of 1 %; all else is what
ships. mawk clamps seeds of 2^31 and more to one value, so the seed is a remainder.

Run: python -m benchmarks.ab_boards --trials 20
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from fleet.lab import Lab

PROGRAM = """#!/bin/sh
awk -v seed="$(($(od -An -N4 -tu4 /dev/urandom) % 2147483647))" -v rate={rate} 'BEGIN {{
  srand(seed); noise = 0
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


def playbook(folder: Path, rate: float) -> Path:
    """A playbook of its own, whose program says such a rate."""
    (folder / "bundle").mkdir(parents=True)
    (folder / "bundle" / "model.gguf").write_text("GGUF")
    (folder / "llama-bench").write_text(PROGRAM.format(rate=rate, name=folder.name))
    (folder / "playbook.yaml").write_text(PLAYBOOK)
    return folder / "playbook.yaml"


def answer(lab: Lab, folder: Path, b: Path) -> tuple[str, int]:
    """What one `fleet ab` says, and after how many pairs."""
    argv = [sys.executable, "-m", "fleet", "ab", str(folder / "a" / "playbook.yaml"), str(b)]
    argv += ["-i", str(lab.inventory), "--gate", "decode_tps<-5%", "--offline", "--json"]
    done = subprocess.run(
        [*argv, "--output", str(folder / "runs")], capture_output=True, text=True, check=False
    )
    try:
        (row,) = json.loads(done.stdout.splitlines()[-1])["rows"]
    except (ValueError, KeyError):
        raise SystemExit(done.stdout[-1000:] + done.stderr[-2000:]) from None
    return row["decision"]["answer"], row["decision"]["pairs"]


def main() -> None:
    """Print how often each answer came."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        playbook(folder / "a", 10)
        sides = {"slower by 15 %": 8.5, "equal": 10}
        said = {what: Counter[str]() for what in sides}
        paths = {what: playbook(folder / what[:5], rate) for what, rate in sides.items()}
        with Lab.up(folder / "lab", count=1, base_port=0) as lab:
            for trial in range(trials):
                for what, path in paths.items():
                    word, pairs = answer(lab, folder, path)
                    said[what][word] += 1
                    print(f"{trial + 1} {what}: {word} after {pairs} pairs", flush=True)
    for what, counts in said.items():
        print(f"{what}: {dict(counts)}")


if __name__ == "__main__":
    main()
