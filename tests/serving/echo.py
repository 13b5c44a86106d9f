"""The real server with a backend that says the words of the prompt back. A process of its own.

Usage: echo.py FOLDER [SECONDS A WORD] [LIMIT=VALUE ...]; a prompt `fail`, `crash`, `hang` does so,
the word `hold` waits for the file FOLDER/go, `SAY text` is answered
with that text, letter by letter.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from fleet.device.server import answers, server, wire
from fleet.device.server.work import BackendError, Job


class Echo:
    kind = "generate"
    sampling = ("seed",)
    greedy = True

    def __init__(self, pause: float, folder: Path) -> None:
        self._pause = pause
        self._go = folder / "go"

    def open(self) -> None:
        time.sleep(self._pause)

    def abort(self) -> None:
        return

    def close(self) -> None:
        sys.stderr.write("closed\n")

    def generate(
        self, prompt: str | list[int], limit: int, job: Job, _: dict[str, Any]
    ) -> dict[str, Any]:
        if isinstance(prompt, list):
            for token in prompt[:limit]:
                job.take(f"{token} ", token)
            counts = {"prompt_tokens": len(prompt), "completion_tokens": len(prompt[:limit])}
            return {"finish": "stop", "tokens": prompt[:limit], **counts}
        if prompt == "fail":
            raise BackendError("generation_failed", "as asked")
        if prompt == "crash":
            raise RuntimeError("secret detail")
        if "SAY " in prompt:
            return self._said(prompt.rpartition("SAY ")[2].partition("<|im_end|>")[0], job)
        words = prompt.split()
        for count, word in enumerate(words[:limit]):
            while prompt == "hang":
                time.sleep(0.05)
            if job.cancelled:
                return {"finish": "cancelled", "prompt_tokens": None, "completion_tokens": count}
            time.sleep(self._pause)
            while word == "hold" and not self._go.exists():
                time.sleep(0.01)
            job.take(word + " ")
        finish = "length" if len(words) > limit else "stop"
        made = min(len(words), limit)
        return {"finish": finish, "prompt_tokens": len(words), "completion_tokens": made}

    def _said(self, text: str, job: Job) -> dict[str, Any]:
        count = 0
        for letter in text:
            if job.cancelled:
                break
            job.take(letter)
            count += 1
        return {"finish": "stop", "prompt_tokens": 1, "completion_tokens": count}

    def logits(self, prompt: str | list[int]) -> dict[str, Any]:
        numbers = [float(len(prompt)), 0.5]
        return {"logits": numbers, "prompt_tokens": len(prompt), "completion_tokens": 0}


def main() -> None:
    folder = Path(sys.argv[1])
    pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    for one in sys.argv[3:]:
        name, _, value = one.partition("=")
        for module in (wire, server, answers):
            if hasattr(module, name):
                setattr(module, name, int(value) if value.isdigit() else float(value))
    config = json.loads((folder / "config.json").read_text())

    async def serve() -> int:
        return await server.Server(str(folder), config, Echo(pause, folder)).run()

    server.leave(asyncio.run(serve()))


if __name__ == "__main__":
    main()
