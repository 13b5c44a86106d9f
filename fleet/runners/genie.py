"""Runner `genie`: genie-t2t-run where the runtime has it, else our own over libGenie."""

from __future__ import annotations

import copy
import json
import re
from importlib.resources import files
from pathlib import Path

from fleet.model.bundle import Bundle
from fleet.model.errors import RunnerError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics
from fleet.runners.base import Ended, Outcome, Start
from fleet.runners.genie_profile import parse_profile

SCRIPT = "run/fleet_genie.py"
_TIMEOUT_STATUS = (124, 137)
_BETWEEN = re.compile(rb"\[BEGIN\]: ?(.*?)(?:\[END\]|\[COMPLETE\]|\[ABORT\]|$)", re.DOTALL)
_STATUS = {
    10: "failed: Genie refuses the configuration",
    11: "failed: no NPU session",
    12: "failed: the query failed",
    13: "cut: context size exceeded",
}


class GenieRunner:
    """Dialog bundles of Qualcomm Genie."""

    name = "genie"

    def files(self, *, has_tool: bool) -> tuple[FileRef, ...]:
        """Our runner, where the runtime lacks genie-t2t-run."""
        if has_tool:
            return ()
        source = Path(str(files("fleet.runners.device") / "fleet_genie.py"))
        return (file_ref(source, SCRIPT, executable=True),)

    def health(self, bundle: Bundle, *, has_tool: bool, timeout: float) -> Start:
        """Create a dialog: backend, device and context from the real context binaries."""
        if has_tool:
            run = RunSpec(prompt="hi", max_tokens=1, timeout=timeout)
            return self.start(bundle, run, has_tool=True)
        argv = (*self._own(bundle), "--check", "--timeout", f"{timeout:g}")
        return Start(argv, "bundle", "outcome.json", timeout)

    def start(self, bundle: Bundle, run: RunSpec, *, has_tool: bool) -> Start:
        """One query; the token limit is always set."""
        prompt = run.prompt.encode()
        if not has_tool:
            argv = (
                *self._own(bundle),
                *("--prompt-file", "{work}/prompt.txt"),
                *("--max-tokens", str(run.max_tokens)),
                *("--timeout", f"{run.timeout:g}"),
            )
            return Start(argv, "bundle", "outcome.json", run.timeout, prompt)
        config = copy.deepcopy(bundle.config)
        config["dialog"]["max-num-tokens"] = run.max_tokens
        argv = (
            "{release}/bin/genie-t2t-run",
            *("-c", "{work}/config.json"),
            *("--prompt_file", "{work}/prompt.txt"),
            *("--profile", "{work}/profile.json"),
        )
        return Start(argv, "bundle", "profile.json", run.timeout, prompt, json.dumps(config))

    def _own(self, bundle: Bundle) -> tuple[str, ...]:
        return (
            *("python3", "{release}/" + SCRIPT),
            *("--config", bundle.config_name),
            *("--outcome", "{work}/outcome.json"),
        )

    def read(self, start: Start, run: RunSpec, bundle: Bundle, ended: Ended) -> Outcome:
        """Metrics, text and whether the run was whole and on the NPU."""
        problems: list[str] = []
        if bundle.backend not in {None, "QnnHtp"}:
            problems.append(f"cpu-fallback: backend {bundle.backend} does not run on the NPU")
        if ended.status in _TIMEOUT_STATUS:
            problems.append(f"cut: no end within {start.timeout:g} s")
        elif ended.status:
            problems.append(_STATUS.get(ended.status, f"failed: exit status {ended.status}"))
        text, profile = self._split(start, ended)
        metrics = Metrics()
        if profile:
            try:
                metrics = parse_profile(profile)
            except RunnerError as error:
                problems.append(f"failed: {error.message}")
        if not problems and metrics.generated_tokens is None:
            problems.append("cut: Genie wrote no query event")
        finish = _finish(metrics, run)
        if finish == "token-limit" and not run.token_limit_counts:
            problems.append(f"cut: token limit {run.max_tokens} reached")
        raw = {"profile.json": profile.encode()} if profile else {}
        return Outcome(metrics, text, finish, tuple(problems), raw)

    def _split(self, start: Start, ended: Ended) -> tuple[str, str]:
        """(generated text, Genie's profile as text)."""
        if start.collect == "profile.json":
            match = _BETWEEN.search(ended.stdout)
            text = match[1] if match else ended.stdout
            return text.decode("utf-8", "replace").strip(), ended.collected.decode(
                "utf-8", "replace"
            )
        try:
            outcome = json.loads(ended.collected)
            return str(outcome["text"]), str(outcome.get("profile", ""))
        except (ValueError, KeyError, TypeError):
            return ended.stdout.decode("utf-8", "replace"), ""


def _finish(metrics: Metrics, run: RunSpec) -> str | None:
    if metrics.generated_tokens is None:
        return None
    return "token-limit" if metrics.generated_tokens >= run.max_tokens else "eos"
