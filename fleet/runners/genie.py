"""Runner `genie`: genie-t2t-run where the runtime has it, else our own over libGenie."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace

from fleet.device.texts import path_of
from fleet.model.bundle import Bundle
from fleet.model.errors import RunnerError
from fleet.model.files import FileRef, file_ref
from fleet.model.playbook import RunSpec
from fleet.model.record import Metrics
from fleet.profiles.formats.genie import parse_profile, printed
from fleet.runners.base import (
    FLAT,
    Defaults,
    Ended,
    Kit,
    Layout,
    Outcome,
    Start,
    reached_limit,
)
from fleet.runners.options import Options, has_program, own_files, parsed

SCRIPT, TOOL_SCRIPT = "run/fleet_genie.py", "run/t2t_run.sh"
OUTCOME, PROFILE = "outcome.json", "profile.json"
_TIMEOUT_STATUS = (124, 137)
_BETWEEN = re.compile(rb"\[BEGIN\]: ?(.*?)(?:\[END\]|\[COMPLETE\]|\[ABORT\]|$)", re.DOTALL)
_UNLIMITED = b"[fleet: this libGenie refuses max-num-tokens"
_STATUS = {
    10: "failed: Genie rejected the configuration of the bundle",
    11: "failed: the NPU session could not be opened",
    12: "failed: the query failed",
    13: "cut: the output filled the context length of the model",
}


class GenieOptions(Options):
    """None: what a dialog needs stands in its configuration."""


class GenieRunner(Defaults):
    """Dialog bundles of Qualcomm Genie."""

    name = "genie"
    kinds = ("genie",)
    runtime: str | None = "genie"
    layout = Layout()
    windows = FLAT  # tools find skel and catalog in their own and the working folder

    def check(self, run: RunSpec) -> None:
        """No options; the program comes with the runtime, but for what it is linked with."""
        parsed(GenieOptions, run.options, self.name)
        has_program(run, self.name, "the program of the runtime", "`program:`")

    def files(self, kit: Kit) -> tuple[FileRef, ...]:
        """What starts genie-t2t-run, or our runner where the runtime lacks it; the user's
        libraries.
        """
        own = own_files(kit.run, self.windows if kit.windows else self.layout)
        if kit.has_tool and kit.windows:
            return own
        script = TOOL_SCRIPT if kit.has_tool else SCRIPT
        return (file_ref(path_of(script.removeprefix("run/")), script, executable=True), *own)

    def health(self, kit: Kit, timeout: float) -> Start | None:
        """Create a dialog: backend, device and context from the real context binaries."""
        if kit.has_tool:
            run = RunSpec(prompt="hi", max_tokens=1, timeout=timeout)
            return self.start(replace(kit, run=run))
        argv = (*self._own(kit.bundle), "--check", "--timeout", f"{timeout:g}")
        return Start(argv, "bundle", (OUTCOME,), timeout)

    def start(self, kit: Kit) -> Start:
        """One query; the token limit is always set."""
        run, bundle = kit.run, kit.bundle
        prompt = run.prompt.encode()
        if not kit.has_tool:
            argv = (
                *self._own(bundle),
                *("--prompt-file", "{work}/prompt.txt"),
                *("--max-tokens", str(run.max_tokens)),
                *("--timeout", f"{run.timeout:g}"),
            )
            return Start(argv, "bundle", (OUTCOME,), run.timeout, prompt)
        config = copy.deepcopy(bundle.config)
        config["dialog"].pop("max-num-tokens", None)  # the script removes the last key
        config["dialog"]["max-num-tokens"] = run.max_tokens
        argv = ("--prompt_file", "{work}/prompt.txt")
        if kit.windows:
            argv = ("{release}/genie-t2t-run.exe", *argv, "-c", "{work}/config.json")
            argv = (*argv, "--profile", "{work}/profile.json")
        else:
            tool = "{release}/bin/genie-t2t-run"
            argv = ("sh", "{release}/" + TOOL_SCRIPT, "{work}", tool, *argv)
        folder = "" if kit.windows else "bundle"
        return Start(argv, folder, (PROFILE,), run.timeout, prompt, json.dumps(config))

    def _own(self, bundle: Bundle) -> tuple[str, ...]:
        return (
            *("python3", "{release}/" + SCRIPT),
            *("--config", bundle.config_name),
            *("--outcome", "{work}/" + OUTCOME),
        )

    def read(self, start: Start, kit: Kit, ended: Ended) -> Outcome:
        """Metrics, text and whether the run was whole and on the NPU."""
        run, bundle = kit.run, kit.bundle
        problems: list[str] = []
        if bundle.backend not in {None, "QnnHtp"}:
            problems.append(f"cpu-fallback: backend {bundle.backend} does not run on the NPU")
        if ended.status in _TIMEOUT_STATUS:
            problems.append(f"cut: the program did not end within {start.timeout:g} s")
        elif ended.status:
            problems.append(_STATUS.get(ended.status, f"failed: exit status {ended.status}"))
        text, profile = self._split(start, ended)
        metrics = Metrics()
        if profile:
            try:
                metrics = parse_profile(profile)
            except RunnerError as error:
                problems.append(f"failed: {error.message}")
        elif kit.has_tool:
            metrics = printed(ended.stdout.decode("utf-8", "replace"))
        if not problems and metrics.generated_tokens is None:
            problems.append("cut: Genie ended before it wrote the times of the query")
        unlimited = _UNLIMITED in ended.stderr
        finish = _finish(metrics, run, unlimited=unlimited)
        marks: tuple[str, ...] = ("no-token-limit",) if unlimited else ()
        if finish == "token-limit":
            more, marks = reached_limit(run)
            problems += more
        raw = {PROFILE: profile.encode()} if profile else {}
        return Outcome(metrics, text, finish, tuple(problems), raw, marks=marks)

    def _split(self, start: Start, ended: Ended) -> tuple[str, str]:
        """(generated text, Genie's profile as text)."""
        collected = ended.files.get(start.collect[0], b"")
        if start.collect == (PROFILE,):
            match = _BETWEEN.search(ended.stdout)
            text = match[1] if match else ended.stdout
            return text.decode("utf-8", "replace").strip(), collected.decode("utf-8", "replace")
        try:
            outcome = json.loads(collected)
            return str(outcome["text"]), str(outcome.get("profile", ""))
        except (ValueError, KeyError, TypeError):
            return ended.stdout.decode("utf-8", "replace"), ""


def _finish(metrics: Metrics, run: RunSpec, *, unlimited: bool) -> str | None:
    if metrics.generated_tokens is None:
        return None
    limited = not unlimited and metrics.generated_tokens >= run.max_tokens
    return "token-limit" if limited else "eos"
