"""The backend geniex: `geniex serve` of Qualcomm's GenieX, as a child process on the loopback.

Sources: qualcomm/GenieX cb60a5d: cli/server/handler/completion.go, cli/cmd/geniex/serve.go and
main.go, sdk/model-manager/crates/core/src/manifest.rs, sdk/include/geniex.h, sampler_config_utils.h
and params.cpp of the plugins. The child has no token and logs no prompt. It gets the prompt as it
is: this server applies the chat template.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from typing import Any, Dict, List, Optional, Union

from fleet.device.server.work import BackendError, Job, no_logits

KEEP_SECONDS = 10**9  # the model stays loaded
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, prctl(2)
_POLL_SECONDS = 0.1
_PROMPT_TOO_LONG = -200103  # GENIEX_ERROR_LLM_GENERATION_PROMPT_TOO_LONG
_MANIFEST = "geniex.json"
# GenieX reads 0 as not given and takes a value of its own; these values do what 0 asks for
_ZEROS = {
    "temperature": -1, "top_p": 1e-6, "top_k": -1, "min_p": 1e-9, "seed": 1,
    "presence_penalty": 1e-9, "frequency_penalty": 1e-9,
}  # fmt: skip


class GeniexBackend:
    """Text in, text out, one request at a time, as GenieX itself does it."""

    kind = "generate"
    sampling = (
        *("temperature", "top_p", "top_k", "min_p", "seed"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty"),
    )
    greedy = False

    def __init__(self, config: "Dict[str, Any]") -> None:
        self._config, self._spec = config, config["geniex"]
        self._child: "Optional[subprocess.Popen[bytes]]" = None
        self._call: "Optional[http.client.HTTPConnection]" = None
        self._port = 0

    def open(self) -> None:
        """Start the program, and load the model with a request for one token.

        Raises BackendError.
        """
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._port = listener.getsockname()[1]
        root, data = self._spec["root"], os.path.join(self._config["folder"], "geniex")
        self._register(data)
        libraries = filter(None, (root, os.environ.get("LD_LIBRARY_PATH")))
        self._child = subprocess.Popen(
            [
                *(os.path.join(root, self._spec["program"]), "serve", "--data-dir", data),
                "--skip-update",
                *("--host", "127.0.0.1:%d" % self._port, "--keepalive", str(KEEP_SECONDS)),
                *self._spec["argv"],
            ],
            env={
                **os.environ,
                "LD_LIBRARY_PATH": ":".join(libraries),
                "GENIEX_PLUGIN_PATH": root,
            },
            stdin=subprocess.DEVNULL,
            stdout=2,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - no other thread uses locks yet
        )
        end = time.monotonic() + self._config["request_seconds"]
        while not self._ask({"prompt": "hi", "max_tokens": 1}, bool):
            if self._child.poll() is not None or time.monotonic() > end:
                raise BackendError("no_session", "geniex serve does not answer: fleet serve logs")
            time.sleep(_POLL_SECONDS)

    def _register(self, data: str) -> None:
        """Make the bundle a model of GenieX: a manifest, and links to the files."""
        shutil.rmtree(data, ignore_errors=True)
        folder = os.path.join(data, "models", self._name)
        os.makedirs(folder)
        for name in set(os.listdir(".")) - {_MANIFEST}:  # a bundle from GenieX's cache has one
            os.symlink(os.path.abspath(name), os.path.join(folder, name))
        model = self._spec["model"]
        whole = {"Name": model, "Downloaded": True, "Size": os.path.getsize(model)}
        manifest = {
            "Name": self._name,
            "ModelName": self._config["name"],
            "ModelType": "llm",
            "PluginId": self._spec["plugin"],
            "ModelFile": {"N/A": whole},
        }
        with open(os.path.join(folder, _MANIFEST), "w") as stream:
            json.dump(manifest, stream)

    @property
    def _name(self) -> str:
        """The name of the model in GenieX, which needs an owner."""
        return "fleet/%s" % self._config["name"]

    def abort(self) -> None:
        """End the request, from any thread; GenieX then stops at the next token."""
        call = self._call
        if call is not None and call.sock is not None:
            try:
                call.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def generate(
        self,
        prompt: "Union[str, List[int]]",
        limit: int,
        job: Job,
        sampling: "Dict[str, Any]",
    ) -> "Dict[str, Any]":
        """Generate at most `limit` tokens; return finish and token counts. Raises BackendError."""
        made = [0]

        def take(text: str) -> bool:
            made[0] += 1
            job.take(text)
            return not job.cancelled

        sampling = {key: value or _ZEROS.get(key, 0) for key, value in sampling.items()}
        end = self._ask({"prompt": prompt, "max_tokens": limit, **sampling}, take)
        if job.cancelled:
            end = {"finish": "cancelled", "completion_tokens": made[0]}
        elif not end.get("finish"):
            raise BackendError("broken", "geniex serve broke off an answer; the service restarts")
        return {"prompt_tokens": None, "completion_tokens": made[0], **end}

    def _ask(self, body: "Dict[str, Any]", take: Any) -> "Dict[str, Any]":
        """Stream one completion to `take`, which returns False to end it; return how it ended."""
        body = {"model": self._name, "stream": True, "stream_options": {"include_usage": True},
                **body}  # fmt: skip
        seconds = self._config["request_seconds"]
        call = self._call = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        end = {}  # type: Dict[str, Any]
        try:
            call.request("POST", "/v1/completions", json.dumps(body),
                         {"Content-Type": "application/json"})  # fmt: skip
            answer = call.getresponse()
            if answer.status != 200:
                raise _refusal(answer.status, answer.read())
            for line in answer:
                kind, _, data = line.strip().partition(b":")
                if kind != b"data" or data.strip() == b"[DONE]":
                    continue
                chunk = json.loads(data.decode("utf-8"))
                if "error" in chunk:
                    raise _refusal(500, data)
                counts = chunk.get("usage") or {}
                end.update((key, counts[key]) for key in _COUNTS if key in counts)
                for choice in chunk.get("choices", ()):
                    end["finish"] = choice["finish_reason"] or end.get("finish")
                    if choice["text"] and not take(choice["text"]):
                        return end
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            end.pop("finish", None)
        finally:
            self._call = None
            call.close()
        return end

    logits = no_logits

    def close(self) -> None:
        """End the program."""
        if self._child is not None:
            self._child.terminate()


_COUNTS = ("prompt_tokens", "completion_tokens")


def _refusal(status: int, raw: bytes) -> BackendError:
    """Return the error for an error of GenieX: a text, and a code if it comes from its SDK."""
    try:
        answer = json.loads(raw.decode("utf-8"))
        text, code = answer["error"], answer.get("code")
    except (ValueError, KeyError, TypeError):
        text, code = raw[:200].decode("utf-8", "replace"), None
    if code == _PROMPT_TOO_LONG:
        text = "the prompt is longer than the context length of the model"
        return BackendError("context_exceeded", text, 400)
    return BackendError("generation_failed", "GenieX: %s" % text, 400 if status == 400 else 500)


def _end_with_parent() -> None:
    """Let the kernel end this process with its parent, which can be killed at any time."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
