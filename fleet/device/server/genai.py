"""The backend for onnxruntime-genai folders, if the release contains that package."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple, Union

from fleet.device.server.work import BackendError, Job


class GenaiBackend:
    """Text in, text out, with the search options of genai_config.json."""

    kind = "generate"
    sampling = ("temperature", "top_p", "top_k", "seed", "repetition_penalty")
    greedy = False

    def __init__(self, config: "Dict[str, Any]") -> None:
        sys.path.insert(0, config["site"])
        try:
            import onnxruntime_genai  # noqa: PLC0415
        except ImportError as error:
            raise BackendError(
                "no_package",
                "the bundle needs onnxruntime-genai, and the release has no such package "
                "for this Python (%s): fleet deploy" % error,
            ) from error
        self._genai: Any = onnxruntime_genai
        if "qnn" not in config["providers"]:
            raise BackendError(
                "no_npu",
                "the model would run on the CPU: add the QNN provider to genai_config.json",
            )
        self._model: Any = None
        self.context = config.get("context")
        self._window: int = config.get("window", 1)

    def open(self) -> None:
        """Load the model with the QNN provider, a separate plug-in. Raises BackendError."""
        try:
            import onnxruntime_qnn  # noqa: PLC0415
        except ImportError as error:
            raise BackendError("no_package", "no onnxruntime-qnn in the release") from error
        name, library = onnxruntime_qnn.get_ep_name(), onnxruntime_qnn.get_library_path()
        self._genai.register_execution_provider_library(name, library)
        self._model = self._genai.Model(self._genai.Config("."))
        self._tokenizer = self._genai.Tokenizer(self._model)

    def abort(self) -> None:
        """Do nothing: the loop checks for cancellation after each token."""

    def close(self) -> None:
        """Drop the model."""
        self._model = self._tokenizer = None

    def generate(
        self,
        prompt: "Union[str, List[int]]",
        limit: int,
        job: Job,
        sampling: "Dict[str, Any]",
    ) -> "Dict[str, Any]":
        """Generate at most `limit` tokens from text or token ids; return finish and tokens."""
        generator, asked, most = self._begun(prompt, limit, _search(sampling))
        tokens, pieces = [], self._tokenizer.create_stream()  # type: List[int], Any
        while not generator.is_done() and not job.cancelled:
            generator.generate_next_token()
            tokens.append(int(generator.get_next_tokens()[0]))
            job.take(pieces.decode(tokens[-1]), tokens[-1])
        full = len(tokens) >= most
        finish = "cancelled" if job.cancelled else "length" if full else "stop"
        counts = {"prompt_tokens": asked, "completion_tokens": len(tokens)}
        return {"finish": finish, "tokens": tokens, **counts}

    def logits(self, prompt: "Union[str, List[int]]") -> "Dict[str, Any]":
        """Return the logits after the last token of the prompt, from one pass."""
        generator, asked, _ = self._begun(prompt, 1, {})
        row = generator.get_logits().reshape(-1, generator.get_logits().shape[-1])[-1]
        return {"logits": row.tolist(), "prompt_tokens": asked, "completion_tokens": 0}

    def _begun(
        self, prompt: "Union[str, List[int]]", limit: int, search: "Dict[str, Any]"
    ) -> "Tuple[Any, int, int]":
        """Return a generator with the prompt, the number of its tokens, and the limit of the
        answer.
        """
        ids = self._tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        asked = len(ids)
        if self.context is not None and asked >= self.context:
            message = "the prompt has %d tokens; the context of the model has %d"
            raise BackendError("context_exceeded", message % (asked, self.context), 400)
        filled = -(-asked // self._window) * self._window  # genai pads the prompt to whole windows
        whole = filled + limit if self.context is None else min(filled + limit, self.context)
        params = self._genai.GeneratorParams(self._model)
        params.set_search_options(max_length=whole, **search)
        generator = self._genai.Generator(self._model, params)
        generator.append_tokens(ids)
        return generator, asked, whole - filled


def _search(sampling: "Dict[str, Any]") -> "Dict[str, Any]":
    """Return the search options of onnxruntime-genai for the fields of a request."""
    names = {"seed": "random_seed"}
    options = {names.get(key, key): value for key, value in sampling.items()}
    if options.get("temperature") == 0:
        del options["temperature"]
        return {**options, "do_sample": False}
    if options.get("top_k") == -1:
        options["top_k"] = 0
    return (
        {**options, "do_sample": True}
        if {"temperature", "top_p", "top_k"} & set(options)
        else options
    )
