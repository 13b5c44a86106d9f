"""The backend genie: one dialog of libGenie for all requests, reset before each.

Seen with libGenie of QAIRT 2.51 on x86_64: without GenieDialog_reset the next query of a dialog
returns no text; an aborted query returns 1; a full context returns 4.
"""

from __future__ import annotations

import codecs
import ctypes as c
import json
from typing import Any, Dict, List, Optional, Union

from fleet.device.npu.fleet_genie import ALLOC, CONTEXT_EXCEEDED, TOKEN, Genie
from fleet.device.server.work import BackendError, Job, no_logits

ABORT = 1
ABORTED = 1
END = 3
TOKENS = c.CFUNCTYPE(None, c.POINTER(c.c_uint32), c.c_uint32, c.c_int, c.c_void_p)
LOG_LEVEL = 1  # errors only: the log of a service must not grow with each request


class Dialog(Genie):
    """libGenie without a profile, which would grow with each query."""

    def open(self, text: bytes) -> "tuple[int, int]":
        """Open the dialog and return (config status, dialog status); 0 is success."""
        status = self.lib.GenieDialogConfig_createFromJson(text, c.byref(self.config))
        if status:
            return status, -1
        self.lib.GenieDialogConfig_bindLogger(self.config, self.log)
        return 0, self.lib.GenieDialog_create(self.config, c.byref(self.dialog))

    def tokens(self, text: bytes) -> "Optional[int]":
        """Return the number of tokens of a text, None if this libGenie does not report it."""
        tokenizer, ids, count = self._tokenizer(), c.c_void_p(), c.c_uint32()
        if tokenizer is None:
            return None
        callback, _ = _room()
        status = self.lib.GenieTokenizer_encode(
            tokenizer, text, callback, c.byref(ids), c.byref(count)
        )
        return None if status else count.value

    def text(self, ids: "List[int]") -> str:
        """Return the text of tokens; an incomplete character is U+FFFD."""
        callback, _kept = _room()
        out, array = c.c_char_p(), (c.c_int32 * len(ids))(*ids)
        self.lib.GenieTokenizer_decode(
            self._tokenizer(), array, c.c_uint32(len(ids)), callback, c.byref(out)
        )
        return (out.value or b"").decode("utf-8", "replace")

    def _tokenizer(self) -> "Optional[c.c_void_p]":
        tokenizer = c.c_void_p()
        if not hasattr(self.lib, "GenieTokenizer_encode"):
            return None
        failed = self.lib.GenieDialog_getTokenizer(self.dialog, c.byref(tokenizer))
        return None if failed else tokenizer


def _room() -> "tuple[Any, list[Any]]":
    """Return a callback with which Genie allocates memory, and the list that keeps it alive."""
    kept = []  # type: List[Any]

    def allocate(size: int, where: "c._Pointer[c.c_void_p]") -> None:
        kept.append(c.create_string_buffer(size + 1))
        where[0] = c.addressof(kept[-1])

    return ALLOC(allocate), kept


class _Pieces:
    """The text of tokens that arrive one by one. It decodes from the last complete
    character only.
    """

    def __init__(self, dialog: Dialog) -> None:
        self._dialog = dialog
        self.ids = []  # type: List[int]
        self._begin = self._done = 0

    def add(self, token: int) -> str:
        """Return the text that this token completes, "" within a character."""
        self.ids.append(token)
        before = self._dialog.text(self.ids[self._begin : self._done]) if self._done else ""
        after = self._dialog.text(self.ids[self._begin :])
        if after.endswith("\ufffd"):
            return ""
        self._begin, self._done = self._done, len(self.ids)
        return after[len(before) :]


class GenieBackend:
    """Text in, text out."""

    kind = "generate"
    # libGenie has no usable sampler: GenieSampler_applyConfig of QAIRT 2.51 leaves a greedy sampler
    # greedy, and aborts the process for temp 0.
    sampling = ()  # type: tuple[str, ...]

    def __init__(self, config: "Dict[str, Any]") -> None:
        with open(config["model"], "rb") as stream:
            self._text = stream.read()
        dialog = json.loads(self._text).get("dialog", {})
        self.context: "Optional[int]" = dialog.get("context", {}).get("size")
        self.greedy = dialog.get("sampler", {}).get("top-k") == 1
        self._dialog: "Optional[Dialog]" = None

    def open(self) -> None:
        """Create the dialog, which opens the NPU session. Raises BackendError."""
        dialog = Dialog("libGenie.so", LOG_LEVEL)
        refused, failed = dialog.open(self._text)
        if refused or failed:
            what = "refuses the configuration" if refused else "cannot open an NPU session"
            raise BackendError("no_session", "Genie %s (%d)" % (what, refused or failed))
        self._dialog = dialog

    def abort(self) -> None:
        """Abort the running query, from any thread. A signal between two queries has no effect."""
        if self._dialog is not None and hasattr(self._dialog.lib, "GenieDialog_signal"):
            self._dialog.lib.GenieDialog_signal(self._dialog.dialog, c.c_int(ABORT))

    def generate(
        self,
        prompt: "Union[str, List[int]]",
        limit: int,
        job: Job,
        _: "Dict[str, Any]",
    ) -> "Dict[str, Any]":
        """Run one query; return finish and token counts. Raises BackendError."""
        if self._dialog is None:
            raise BackendError("no_session", "the NPU session is not open; fleet serve restart")
        dialog = self._dialog
        asked = dialog.tokens(prompt.encode()) if isinstance(prompt, str) else len(prompt)
        if asked is not None and self.context is not None and asked >= self.context:
            raise _too_long(
                "it has %d tokens, but the context length of the model is %d"
                % (asked, self.context)
            )
        dialog.lib.GenieDialog_setMaxNumTokens(dialog.dialog, c.c_uint32(limit))
        query = self._from_text if isinstance(prompt, str) else self._from_ids
        status, count, more = query(dialog, prompt, job)
        if dialog.lib.GenieDialog_reset(dialog.dialog):
            raise BackendError("broken", "Genie cannot reset the dialog; the service restarts")
        if status == CONTEXT_EXCEEDED and not count:
            raise _too_long("it is longer than the context length of the model")
        if status not in (0, ABORTED, CONTEXT_EXCEEDED):
            raise BackendError("generation_failed", "Genie ended the query with %d" % status)
        full = status == CONTEXT_EXCEEDED or count >= limit
        finish = "cancelled" if status == ABORTED else "length" if full else "stop"
        return {"finish": finish, "prompt_tokens": asked, "completion_tokens": count, **more}

    def _from_text(
        self, dialog: Dialog, prompt: Any, job: Job
    ) -> "tuple[int, int, Dict[str, Any]]":
        """Return Genie's status, the number of tokens, and no other fields."""
        decoder, count = codecs.getincrementaldecoder("utf-8")("replace"), [0]

        def take(piece: "Optional[bytes]", code: int, _: "Optional[int]") -> None:
            if job.cancelled:
                self.abort()
                return
            if code != END:
                count[0] += 1
            job.take(decoder.decode(piece or b"", code == END))

        status = dialog.lib.GenieDialog_query(
            dialog.dialog, prompt.encode(), c.c_int(0), TOKEN(take), None
        )
        return status, count[0], {}

    def _from_ids(self, dialog: Dialog, prompt: Any, job: Job) -> "tuple[int, int, Dict[str, Any]]":
        """Query like `_from_text`, but with token ids; return the tokens of the answer too."""
        pieces, array = _Pieces(dialog), (c.c_uint32 * len(prompt))(*prompt)

        def take(ids: Any, count: int, _: int, __: "Optional[int]") -> None:
            if job.cancelled:
                self.abort()
                return
            for place in range(count):
                job.take(pieces.add(int(ids[place])), int(ids[place]))

        status = dialog.lib.GenieDialog_tokenQuery(
            dialog.dialog, array, c.c_uint32(len(prompt)), c.c_int(0), TOKENS(take), None
        )
        return status, len(pieces.ids), {"tokens": pieces.ids}

    logits = no_logits

    def close(self) -> None:
        """Free the session."""
        if self._dialog is not None:
            self._dialog.free()
            self._dialog = None


def _too_long(why: str) -> BackendError:
    return BackendError("context_exceeded", "the prompt is too long: " + why, 400)
