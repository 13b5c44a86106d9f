"""Backend genie: one dialog of libGenie for all requests, made empty before each.

Seen with libGenie of QAIRT 2.51 on x86_64: without GenieDialog_reset the next query of a dialog
says nothing; an aborted query gives 1; a full context gives 4.
"""

from __future__ import annotations

import codecs
import ctypes as c
import json
from typing import Any, Dict, Optional

from fleet.device.npu.fleet_genie import ALLOC, CONTEXT_EXCEEDED, TOKEN, Genie
from fleet.device.server.work import BackendError, Job

ABORT = 1
ABORTED = 1
END = 3
LOG_LEVEL = 1  # errors: the log of a service must not grow with each request


class Dialog(Genie):
    """libGenie without a profile: it would grow with each query."""

    def open(self, text: bytes) -> "tuple[int, int]":
        """(config status, dialog status); 0 is good."""
        status = self.lib.GenieDialogConfig_createFromJson(text, c.byref(self.config))
        if status:
            return status, -1
        self.lib.GenieDialogConfig_bindLogger(self.config, self.log)
        return 0, self.lib.GenieDialog_create(self.config, c.byref(self.dialog))

    def tokens(self, text: bytes) -> "Optional[int]":
        """How many tokens a text is; None where this libGenie does not tell."""
        if not hasattr(self.lib, "GenieTokenizer_encode"):
            return None
        tokenizer, ids, count = c.c_void_p(), c.c_void_p(), c.c_uint32()
        if self.lib.GenieDialog_getTokenizer(self.dialog, c.byref(tokenizer)):
            return None
        kept = []

        def allocate(size: int, where: "c._Pointer[c.c_void_p]") -> None:
            kept.append(c.create_string_buffer(size + 1))
            where[0] = c.addressof(kept[-1])

        callback = ALLOC(allocate)
        status = self.lib.GenieTokenizer_encode(
            tokenizer, text, callback, c.byref(ids), c.byref(count)
        )
        return None if status else count.value


class GenieBackend:
    """Text in, text out."""

    kind = "generate"

    def __init__(self, config: "Dict[str, Any]") -> None:
        with open(config["model"], "rb") as stream:
            self._text = stream.read()
        context = json.loads(self._text).get("dialog", {}).get("context", {})
        self.context: "Optional[int]" = context.get("size")
        self._dialog: "Optional[Dialog]" = None

    def open(self) -> None:
        """Create the dialog: the NPU session."""
        dialog = Dialog("libGenie.so", LOG_LEVEL)
        refused, failed = dialog.open(self._text)
        if refused or failed:
            what = "refuses the configuration" if refused else "cannot open an NPU session"
            raise BackendError("no_session", "Genie %s (%d)" % (what, refused or failed))
        self._dialog = dialog

    def abort(self) -> None:
        """End the query that runs; from any thread. A signal between two queries does nothing."""
        if self._dialog is not None and hasattr(self._dialog.lib, "GenieDialog_signal"):
            self._dialog.lib.GenieDialog_signal(self._dialog.dialog, c.c_int(ABORT))

    def generate(self, prompt: str, limit: int, job: Job) -> "Dict[str, Any]":
        """One query of at most `limit` tokens; its pieces go to the job."""
        if self._dialog is None:
            raise BackendError("no_session", "the NPU session is not open; fleet serve restart")
        dialog, text = self._dialog, prompt.encode()
        asked = dialog.tokens(text)
        if asked is not None and self.context is not None and asked >= self.context:
            raise _too_long(
                "it has %d tokens, but the context length of the model is %d"
                % (asked, self.context)
            )
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        count = [0]

        def take(piece: "Optional[bytes]", code: int, _: "Optional[int]") -> None:
            if job.cancelled:
                self.abort()
                return
            if code != END:
                count[0] += 1
            job.take(decoder.decode(piece or b"", code == END))

        dialog.lib.GenieDialog_setMaxNumTokens(dialog.dialog, c.c_uint32(limit))
        callback = TOKEN(take)
        status = dialog.lib.GenieDialog_query(dialog.dialog, text, c.c_int(0), callback, None)
        if dialog.lib.GenieDialog_reset(dialog.dialog):
            raise BackendError("broken", "Genie cannot reset the dialog; the service restarts")
        if status == CONTEXT_EXCEEDED and not count[0]:
            raise _too_long("it is longer than the context length of the model")
        if status not in (0, ABORTED, CONTEXT_EXCEEDED):
            raise BackendError("generation_failed", "Genie ended the query with %d" % status)
        full = status == CONTEXT_EXCEEDED or count[0] >= limit
        finish = "cancelled" if status == ABORTED else "length" if full else "stop"
        return {"finish": finish, "prompt_tokens": asked, "completion_tokens": count[0]}

    def close(self) -> None:
        """Free the session."""
        if self._dialog is not None:
            self._dialog.free()
            self._dialog = None


def _too_long(why: str) -> BackendError:
    return BackendError("context_exceeded", "the prompt is too long: " + why, 400)
