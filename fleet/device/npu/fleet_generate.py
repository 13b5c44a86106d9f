"""Generates tokens with an encoder, a decoder and a decoder with past, all of them on the NPU.

Options, files and exit status are those of fleet_ort.py, which does the work: a run is one greedy
generation, its output is `tokens`. Names are those of optimum's export to ONNX: `present.X` of one
step is `past_key_values.X` of the next. Shapes are static on the NPU, so the cache of the decoder
has all its places from the start, and `cache_position` (as in transformers' static cache) says
which one a step writes.
"""

import os
import sys
import time
from typing import Any, Dict, List, Tuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from fleet.device.npu.fleet_ort import TYPES, BadRequestError, Model, main


class _Tokens:
    """The output, as onnxruntime describes one."""

    name = "tokens"


class _Sessions:
    """The three parts, with the calls of one InferenceSession."""

    def __init__(self, np: Any, parts: "List[Any]", spec: "Dict[str, Any]") -> None:
        self.np, self.spec = np, spec
        self.encoder, self.first, self.next = parts
        caches = (tensor for tensor in self.next.get_inputs() if ".decoder." in tensor.name)
        self.most = min([spec["max_tokens"], *(int(tensor.shape[2]) for tensor in caches)])
        self.encoder_seconds, self.token_seconds = 0.0, []  # type: Tuple[float, List[float]]
        self.finish, self.cut = "", False

    def get_providers(self) -> "List[str]":
        """Of the encoder; the others are opened alike."""
        found: "List[str]" = self.encoder.get_providers()
        return found

    def get_inputs(self) -> "List[Any]":
        """Of the encoder."""
        found: "List[Any]" = self.encoder.get_inputs()
        return found

    def get_outputs(self) -> "List[Any]":
        """The answer."""
        return [_Tokens]

    def run(self, _: None, feed: "Dict[str, Any]") -> "List[Any]":
        """Inputs of the encoder in, one generation, its tokens out."""
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
        found = {}
        for tensor in part.get_inputs():
            value = known.get(tensor.name.replace("past_key_values", "present"))
            if value is None:
                raise BadRequestError("nothing gives the decoder's input %s" % tensor.name)
            kind = TYPES.get(tensor.type) or tensor.type[len("tensor(") : -1]
            found[tensor.name] = value.astype(kind, copy=False)
        return found


class Generation(Model):
    """Three models, the inputs of the first, and what came out of the last."""

    def open(self, profile: "str | None") -> "Tuple[float, str]":
        """Create the sessions; the profile is of the decoder with past, which runs most."""
        self.register()
        began = time.perf_counter()
        parts = [
            self.opened(self.spec[key], profile if key == "decoder_with_past" else None)
            for key in ("model", "decoder", "decoder_with_past")
        ]
        self.session = _Sessions(self.np, parts, self.spec)
        return time.perf_counter() - began, self.device

    def told(self) -> "Dict[str, Any]":
        """When each token of the last generation came."""
        return {
            "encoder_ms": self.session.encoder_seconds * 1000,
            "token_seconds": self.session.token_seconds,
            "finish": self.session.finish,
            "cut_by_context": self.session.cut,
        }


if __name__ == "__main__":
    main(Generation)
