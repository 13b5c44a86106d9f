"""Generates tokens on the NPU with an encoder, a decoder and a decoder with past, or with a decoder
alone, with or without a cache.

Options, files and exit status are those of fleet_ort.py, which does the work: a run is one greedy
generation, and its output is `tokens`. Names are those of optimum's export to ONNX: `present.X` of
one step is `past_key_values.X` of the next. Shapes are static on the NPU, so the decoder's cache
has its full size from the start. `cache_position` (as in transformers' static cache) is the place
that a step writes.
"""

import os
import sys
import time
from typing import Any, Dict, Iterator, List, Tuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from fleet.device.npu.fleet_ort import TYPES, BadRequestError, Model, run


class _Tokens:
    """The output, described like an output of onnxruntime."""

    name = "tokens"


class _Sessions:
    """The three parts, with the interface of one InferenceSession."""

    def __init__(self, np: Any, parts: "List[Any]", spec: "Dict[str, Any]") -> None:
        self.np, self.spec = np, spec
        self.encoder, self.first, self.next = parts
        caches = (tensor for tensor in self.next.get_inputs() if ".decoder." in tensor.name)
        self.most = min([spec["max_tokens"], *(int(tensor.shape[2]) for tensor in caches)])
        self.encoder_seconds, self.token_seconds = 0.0, []  # type: Tuple[float, List[float]]
        self.finish, self.cut = "", False

    def get_providers(self) -> "List[str]":
        """Return the providers of the encoder; the other parts are opened in the same way."""
        providers: "List[str]" = self.encoder.get_providers()
        return providers

    def get_inputs(self) -> "List[Any]":
        """Return the inputs of the encoder."""
        inputs: "List[Any]" = self.encoder.get_inputs()
        return inputs

    def get_outputs(self) -> "List[Any]":
        """Return the one output."""
        return [_Tokens]

    def run(self, _: None, feed: "Dict[str, Any]") -> "List[Any]":
        """Run one generation from the encoder's inputs and return its tokens."""
        began, tokens = time.perf_counter(), []  # type: Tuple[float, List[int]]
        known = {"encoder_hidden_states": self.encoder.run(None, feed)[0]}
        self.encoder_seconds, self.token_seconds = time.perf_counter() - began, []
        known["encoder_attention_mask"] = feed.get("attention_mask")
        last = self.spec["start_token"]
        while len(tokens) < self.most:
            part = self.next if tokens else self.first
            known["input_ids"] = self.np.array([[last]])
            known["cache_position"] = self.np.array([len(tokens)])
            outputs = part.run(None, self._fed(part, known))
            known.update(zip((tensor.name for tensor in part.get_outputs()), outputs))
            last = int(known["logits"].reshape(-1, known["logits"].shape[-1])[-1].argmax())
            self.token_seconds.append(time.perf_counter() - began)
            tokens.append(last)
            if last == self.spec["end_token"]:
                break
        self.finish = "eos" if last == self.spec["end_token"] else "token-limit"
        self.cut = self.finish != "eos" and self.most < self.spec["max_tokens"]
        return [self.np.array(tokens)]

    def _fed(self, part: Any, known: "Dict[str, Any]") -> "Dict[str, Any]":
        feed = {}
        for tensor in part.get_inputs():
            value = known.get(tensor.name.replace("past_key_values", "present"))
            if value is None:
                raise BadRequestError("nothing gives the decoder's input %s" % tensor.name)
            kind = TYPES.get(tensor.type) or tensor.type[len("tensor(") : -1]
            feed[tensor.name] = value.astype(kind, copy=False)
        return feed


class Generation(Model):
    """A model of three parts, the inputs of the first, and the output of the last."""

    def open(self, profile: "str | None") -> "Tuple[float, str]":
        """Create the sessions. The profile is that of the decoder with past, which runs
        most often.
        """
        self.register()
        began = time.perf_counter()
        parts = [
            self.opened(self.spec[key], profile if key == "decoder_with_past" else None)
            for key in ("model", "decoder", "decoder_with_past")
        ]
        self.session = _Sessions(self.np, parts, self.spec)
        return time.perf_counter() - began, self.device

    def details(self) -> "Dict[str, Any]":
        """Return the time of each token of the last generation."""
        return {
            "encoder_ms": self.session.encoder_seconds * 1000,
            "token_seconds": self.session.token_seconds,
            "finish": self.session.finish,
            "cut_by_context": self.session.cut,
        }


class DecoderSession:
    """A model with `input_ids` and `logits`, with the interface of one InferenceSession.

    Without a cache, each step gets all tokens, at the left of its fixed width. With a cache, tokens
    are fed one by one. A cache of fixed size is written at `position_ids`; a growing one drops its
    oldest place.
    """

    def __init__(self, np: Any, session: Any, spec: "Dict[str, Any]") -> None:
        """Check the model. Raises BadRequestError for any other kind of model."""
        self.np, self.session, self.spec = np, session, spec
        self.wanted = {tensor.name: tensor for tensor in session.get_inputs()}
        self.given = [tensor.name for tensor in session.get_outputs()]
        if "input_ids" not in self.wanted or "logits" not in self.given:
            raise BadRequestError("a model that generates has input_ids and logits")
        self.width = int(self.wanted["input_ids"].shape[1])
        self.caches = {name: _present(name, self.given) for name in self.wanted if "past" in name}
        sizes = [int(self.wanted[name].shape[2]) for name in self.caches]
        self.places = min(sizes) if sizes else self.width
        if self.caches and self.width != 1:
            raise BadRequestError("a model with a cache must take one token a step")
        self.token_seconds, self.finish, self.cut = [], "", False  # type: List[float], str, bool

    def get_providers(self) -> "List[str]":
        """Return the providers of the session."""
        providers: "List[str]" = self.session.get_providers()
        return providers

    def get_inputs(self) -> "List[Any]":
        """Return no inputs, because the tokens are in the request."""
        return []

    def get_outputs(self) -> "List[Any]":
        """Return the one output."""
        return [_Tokens]

    def run(self, _: None, __: "Dict[str, Any]") -> "List[Any]":
        """Run one greedy generation from the tokens of the request."""
        began = time.perf_counter()
        tokens = []  # type: List[int]
        self.token_seconds = []
        for token in self.tokens(self.spec["tokens"], self.spec["max_tokens"]):
            self.token_seconds.append(time.perf_counter() - began)
            tokens.append(token)
        ended = bool(tokens) and tokens[-1] == self.spec["end_token"]
        self.finish = "eos" if ended else "token-limit"
        self.cut = not ended and len(tokens) < self.spec["max_tokens"]
        return [self.np.array(tokens)]

    def tokens(self, ids: "List[int]", limit: int) -> "Iterator[int]":
        """Yield the likeliest tokens, up to `end_token`, the limit or the end of the cache."""
        self._check(ids)
        known, state = list(ids), self._empty()
        row = self._prompted(known, state)
        for _ in range(limit):
            token = int(row.argmax())
            yield token
            if token == self.spec.get("end_token") or len(known) >= self.places:
                return
            known.append(token)
            row = self._step(known, state) if self.caches else self._whole(known)

    def logits(self, ids: "List[int]") -> Any:
        """Return the row of logits after the last token of a prompt."""
        self._check(ids)
        return self._prompted(list(ids), self._empty())

    def _check(self, ids: "List[int]") -> None:
        if len(ids) > self.places:
            message = "the prompt has %d tokens; the model has room for %d"
            raise BadRequestError(message % (len(ids), self.places))

    def _empty(self) -> "Dict[str, Any]":
        return {name: self._filled(name, 0) for name in self.caches}

    def _prompted(self, ids: "List[int]", state: "Dict[str, Any]") -> Any:
        if not self.caches:
            return self._whole(ids)
        rows = [self._step(ids[: count + 1], state) for count in range(len(ids))]
        return rows[-1]

    def _whole(self, ids: "List[int]") -> Any:
        row = self.np.zeros((1, self.width), self._kind("input_ids"))
        row[0, : len(ids)] = ids
        return self._ran(row, len(ids) - 1, {})[len(ids) - 1]

    def _step(self, ids: "List[int]", state: "Dict[str, Any]") -> Any:
        row = self.np.array([ids[-1:]], self._kind("input_ids"))
        return self._ran(row, len(ids) - 1, state)[-1]

    def _ran(self, row: Any, place: int, state: "Dict[str, Any]") -> Any:
        """Run one step at a place and return the logits by token.

        Writes the cache back into `state`.
        """
        feed = {"input_ids": row, **state}
        for name in self.wanted:
            if name not in feed:
                feed[name] = self._beside(name, place)
        outputs = dict(zip(self.given, self.session.run(None, feed)))
        for name, present in self.caches.items():
            value = outputs[present]
            size = int(self.wanted[name].shape[2])
            state[name] = value[:, :, value.shape[2] - size :]
        return outputs["logits"].reshape(-1, outputs["logits"].shape[-1])

    def _beside(self, name: str, place: int) -> Any:
        """Return positions or the mask for `place`. Raises BadRequestError for other inputs."""
        if "position" in name:
            steps = self.np.arange(self.width) if not self.caches else self.np.array([place])
            return steps.astype(self._kind(name)).reshape(self.wanted[name].shape)
        if name != "attention_mask":
            raise BadRequestError("nothing gives the model's input %s" % name)
        mask = self._filled(name, 0)
        if mask.shape[-1] > self.places:  # a growing cache: its newest entries are at the right
            mask[..., -(place + 1) :] = 1
        else:
            mask[..., : place + 1] = 1
        return mask

    def _filled(self, name: str, value: int) -> Any:
        return self.np.full([int(n) for n in self.wanted[name].shape], value, self._kind(name))

    def _kind(self, name: str) -> str:
        kind = self.wanted[name].type
        return TYPES.get(kind) or str(kind[len("tensor(") : -1])


def _present(past: str, outputs: "List[str]") -> str:
    """Return the output that feeds a cache input, by the names of optimum or AI Hub."""
    for name in (past.replace("past_key_values", "present"), past.replace("_in", "_out")):
        if name in outputs and name != past:
            return name
    raise BadRequestError("no output of the model becomes its input %s" % past)


class DecoderModel(Model):
    """A single decoder with the tokens of a prompt and of its answer."""

    def open(self, profile: "str | None") -> "Tuple[float, str]":
        """Create the session."""
        seconds, device = super().open(profile)
        self.session = DecoderSession(self.np, self.session, self.spec)
        return seconds, device

    def details(self) -> "Dict[str, Any]":
        """Return the time of each token of the last generation."""
        return {
            "prompt_tokens": len(self.spec["tokens"]),
            "token_seconds": self.session.token_seconds,
            "finish": self.session.finish,
            "cut_by_context": self.session.cut,
        }


if __name__ == "__main__":
    run(lambda spec: Generation if spec.get("decoder") else DecoderModel)
