"""The backend ort: tensors in and out through ONNX Runtime's QNN provider; with a decoder alone
tokens in and out.

Tensors are JSON numbers, or exact as .npy in base64. Nothing runs silently on the CPU, because the
session is that of the runner.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import time
from typing import Any, Dict, List

from fleet.device.npu.fleet_generate import DecoderSession
from fleet.device.npu.fleet_ort import TYPES, BadRequestError, Model
from fleet.device.server.work import BackendError, Job


class OrtBackend:
    """A model with `/infer`, and with token generation for a decoder alone."""

    sampling = ()  # type: tuple[str, ...]
    greedy = True

    def __init__(self, config: "Dict[str, Any]") -> None:
        self._model = Model(config["site"], config["ort"])
        self.about: "Dict[str, Any]" = {}
        self.kind = "both" if config.get("generates") else "infer"
        self._decoder: Any = None
        self._most = int(config["max_infer_bytes"])

    def open(self) -> None:
        """Create the session."""
        self._model.open(None)
        if self.kind == "both":
            self._decoder = DecoderSession(self._model.np, self._model.session, self._model.spec)
        self.about = {
            **({"text": False} if self._decoder else {}),
            "inputs": {
                tensor.name: list(tensor.shape) for tensor in self._model.session.get_inputs()
            },
        }

    def abort(self) -> None:
        """Do nothing: a run of a graph is short and cannot be aborted."""

    def close(self) -> None:
        """Drop the session."""
        self._model.close()

    def generate(
        self, prompt: "List[int]", limit: int, job: Job, _: "Dict[str, Any]"
    ) -> "Dict[str, Any]":
        """Generate the most likely tokens after a prompt; return finish and tokens."""
        tokens = []  # type: List[int]
        end = self._model.spec.get("end_token")
        try:
            for token in self._decoder.tokens(prompt, limit):
                if job.cancelled:
                    break
                tokens.append(token)
                job.take("", token)
        except BadRequestError as error:
            raise BackendError("context_exceeded", str(error), 400) from error
        ended = bool(tokens) and tokens[-1] == end
        finish = "cancelled" if job.cancelled else "stop" if ended else "length"
        counts = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        return {"finish": finish, "tokens": tokens, **counts}

    def logits(self, prompt: "List[int]") -> "Dict[str, Any]":
        """Return the logits after the last token of the prompt."""
        try:
            row = self._decoder.logits(prompt)
        except BadRequestError as error:
            raise BackendError("context_exceeded", str(error), 400) from error
        return {"logits": row.tolist(), "prompt_tokens": len(prompt), "completion_tokens": 0}

    def infer(self, inputs: "Dict[str, Any]", npy: bool) -> "Dict[str, Any]":
        """Run the model once; `npy` encodes the outputs as .npy. Raises BackendError 400."""
        session = self._model.session
        wanted = {tensor.name: tensor for tensor in session.get_inputs()}
        for name in inputs:
            if name not in wanted:
                raise _bad("the model has no input %s; it has %s" % (name, ", ".join(wanted)))
        feed = {}
        for name, tensor in wanted.items():
            if name not in inputs:
                raise _bad("the input %s is missing" % name)
            kind = TYPES.get(tensor.type) or tensor.type[len("tensor(") : -1]
            feed[name] = self._array(name, inputs[name], kind)
            if not _fits(feed[name].shape, tensor.shape):
                shapes = (name, list(feed[name].shape), list(tensor.shape))
                raise _bad("the input %s has the shape %s; the model takes %s" % shapes)
        began = time.perf_counter()
        outputs = session.run(None, feed)
        took = (time.perf_counter() - began) * 1000
        names = [tensor.name for tensor in session.get_outputs()]
        results = {name: self._encoded(value, npy) for name, value in zip(names, outputs)}
        return {"outputs": results, "run_ms": round(took, 3)}

    def _array(self, name: str, given: "Dict[str, Any]", kind: str) -> Any:
        np = self._model.np
        try:
            if "npy" in given:
                value = self._from_npy(given["npy"])
            else:
                value = self._from_numbers(given["data"], np.dtype(kind))
                if "shape" in given:
                    value = value.reshape(given["shape"])
        except (ValueError, TypeError, OverflowError, MemoryError, EOFError) as error:
            raise _bad("the input %s: %s" % (name, error)) from error
        if str(value.dtype) != kind:
            raise _bad("the input %s is %s, the model takes %s" % (name, value.dtype, kind))
        return value

    def _from_numbers(self, data: Any, kind: Any) -> Any:
        """Convert JSON numbers exactly: nothing is rounded, truncated, or parsed from text."""
        np = self._model.np
        value = np.array(data)
        fits = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}.get(kind.kind, "")
        if value.size and value.dtype.kind not in fits:
            raise ValueError("data must be a list of numbers of the type %s" % kind)
        if value.size and kind.kind in "iu":
            range_ = np.iinfo(kind)
            if int(value.min()) < range_.min or int(value.max()) > range_.max:
                raise ValueError("a number is out of the range of %s" % kind)
        return value.astype(kind)

    def _from_npy(self, text: str) -> Any:
        try:
            raw = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError("npy is not valid base64: %s" % error) from error
        np, stream = self._model.np, io.BytesIO(raw)
        major = np.lib.format.read_magic(stream)[0]
        read = "read_array_header_%d_0" % major
        if major not in (1, 2):
            raise ValueError("the .npy has version %d; save it as version 1 or 2" % major)
        shape, _, dtype = getattr(np.lib.format, read)(stream)
        # The header must agree with the received size: no memory is allocated because of it alone.
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(raw) - stream.tell():
            raise ValueError("the header of the .npy does not fit the size of the data")
        stream.seek(0)
        return np.load(stream, allow_pickle=False)

    def _encoded(self, value: Any, npy: bool) -> "Dict[str, Any]":
        result = {"type": str(value.dtype), "shape": list(value.shape)}  # type: Dict[str, Any]
        if value.nbytes > self._most:
            raise BackendError("output_too_large", "an output is larger than the limit", 400)
        if npy:
            stream = io.BytesIO()
            self._model.np.save(stream, value)
            return {**result, "npy": base64.b64encode(stream.getvalue()).decode()}
        return {**result, "data": [_plain(number) for number in value.ravel().tolist()]}


def _plain(value: Any) -> Any:
    """Return a number for JSON; null if it is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fits(have: "tuple[int, ...]", want: "List[Any]") -> bool:
    same = (not isinstance(b, int) or a == b for a, b in zip(have, want))
    return len(have) == len(want) and all(same)


def _bad(message: str) -> BackendError:
    return BackendError("bad_input", message, 400)
