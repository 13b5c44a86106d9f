"""First token: the runner's own time beside a client's, through tunnel and service.

    fleet lab up --count 1
    python benchmarks/first_token.py -i .lab/inventory.yaml -l lab001 playbooks/tiny-service.yaml

Deploys the playbook (with `run: prompt:` and `serve:`), starts its service and asks both sides in
turn, so that the load of the machine is the same for both. A run of the runner is a session of its
own, after its warm-ups; the service keeps one session. `added` compares a client with its own
server: time at the client, less the server's time for the same request.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from fleet.config.inventory import load_inventory
from fleet.config.playbook import load_playbook
from fleet.config.select import select
from fleet.engine.serving.service import Serving
from fleet.engine.serving.tunnel import Tunnel
from fleet.engine.session import Session

LIMIT = 600.0


def fleet(*words: str) -> str:
    """The output of a command. Raises CalledProcessError."""
    argv = [sys.executable, "-m", "fleet", *words]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    return done.stdout


def of_runner(words: list[str]) -> float:
    """Milliseconds to the first token of one run, as its record has them."""
    with tempfile.TemporaryDirectory() as folder:
        fleet("run", *words, "--repeats", "1", "--output", folder)
        (path,) = Path(folder).glob("*/*/0/record.json")
        return float(json.loads(path.read_text())["metrics"]["ttft_ms"])


def of_client(client: httpx.Client, prompt: str) -> tuple[float, float]:
    """Milliseconds to the first token at the client, and those of the server for the request."""
    began, first = time.perf_counter(), 0.0
    body = {"prompt": prompt, "max_tokens": 1}
    with client.stream("POST", "/generate/stream", json=body) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines():
            if line.startswith("data: ") and not first:
                first = (time.perf_counter() - began) * 1000
            last = line if line.startswith("data: ") else ""
            if '"total_ms"' in last:
                return first, float(json.loads(last[6:])["total_ms"])
    raise SystemExit("the stream ended before its `done`")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("playbook", type=Path)
    parser.add_argument("-i", dest="inventory", type=Path, required=True)
    parser.add_argument("-l", dest="host", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--asks", type=int, default=5, help="requests for each run of the runner")
    given = parser.parse_args()
    words = ["-i", str(given.inventory), "-l", given.host, str(given.playbook)]
    playbook = load_playbook(given.playbook)
    (host,) = select(load_inventory(given.inventory), [given.host])
    assert playbook.serve is not None
    assert playbook.run is not None
    prompt = playbook.run.prompt or "What is fleet?"
    fleet("deploy", *words)
    fleet("serve", "restart", *words)
    session = Session(host, lambda _: None)
    session.open()
    (token,) = Serving(playbook, [host], lambda _: None).token()
    runner, served = [], []
    with Tunnel(session, playbook.serve.port, say=lambda _: None) as tunnel:
        head = {"Authorization": f"Bearer {token.answer.reveal()}"}
        with httpx.Client(
            base_url=tunnel.url, headers=head, timeout=LIMIT, trust_env=False
        ) as client:
            of_client(client, prompt)
            for _ in range(given.rounds):
                runner.append(of_runner(words))
                served += [of_client(client, prompt) for _ in range(given.asks)]
    session.close()
    own, through = statistics.median(runner), statistics.median(first for first, _ in served)
    added = [first - total for first, total in served]
    sys.stdout.write(
        f"runner's own first token: {own:.1f} ms (median of {len(runner)})\n"
        f"through tunnel and service: {through:.1f} ms (median of {len(served)}), "
        f"{through - own:+.1f} ms\n"
        f"added to the server's own time: {statistics.median(added):.1f} ms "
        f"(median; largest {max(added):.1f} ms)\n"
    )


if __name__ == "__main__":
    main()
