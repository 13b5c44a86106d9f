"""Feed a graph the way Genie does: token by token, with the cache of what came before."""

from collections.abc import Iterator

import numpy as np
import onnxruntime as ort
from graph import float_inputs
from shape import EOS, MASKED, Shape

Feed = dict[str, np.ndarray]


def _empty_cache(shape: Shape) -> Feed:
    sizes = float_inputs(shape, 1)
    return {name: np.zeros(size, np.float32) for name, size in sizes.items() if name[:5] == "past_"}


def _step(shape: Shape, token: int, position: int, cache: Feed) -> Feed:
    angle = position * shape.theta ** -(np.arange(shape.half) * 2 / shape.head)
    mask = np.full((1, 1, 1, shape.context), MASKED, np.float32)
    mask[..., :position] = 0
    mask[..., -1] = 0
    return {
        "input_ids": np.array([[token]], np.int32),
        "attention_mask": mask,
        "position_ids_cos": np.cos(angle).astype(np.float32).reshape(1, 1, 1, -1),
        "position_ids_sin": np.sin(angle).astype(np.float32).reshape(1, 1, 1, -1),
        **{name: value.copy() for name, value in cache.items()},
    }


class Replay:
    """A float-in, float-out graph with one new token per call."""

    def __init__(self, shape: Shape, model: bytes) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        self.shape = shape
        self.session = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
        self.outputs = [output.name for output in self.session.get_outputs()]

    def _remember(self, cache: Feed, made: Feed, position: int) -> None:
        for layer in range(self.shape.layers):
            cache[f"past_key_{layer}_in"][..., position] = made[f"past_key_{layer}_out"][..., 0]
            values = cache[f"past_value_{layer}_in"]
            values[:, :, position] = made[f"past_value_{layer}_out"][:, :, 0]

    def feeds(self, tokens: list[int]) -> Iterator[tuple[Feed, Feed]]:
        """Run over known tokens; give what went in and what came out at each."""
        cache = _empty_cache(self.shape)
        for position, token in enumerate(tokens):
            feed = _step(self.shape, token, position, cache)
            made = dict(zip(self.outputs, self.session.run(None, feed), strict=True))
            yield feed, made
            if position < self.shape.context - 1:
                self._remember(cache, made, position)

    def answer(self, prompt: list[int]) -> list[int]:
        """Answer greedily up to and with the end mark, or up to the end of the context."""
        cache = _empty_cache(self.shape)
        tokens = list(prompt)
        for position in range(self.shape.context - 1):
            feed = _step(self.shape, tokens[position], position, cache)
            made = dict(zip(self.outputs, self.session.run(None, feed), strict=True))
            self._remember(cache, made, position)
            if position + 1 == len(tokens):
                tokens.append(int(made["logits"][0, -1].argmax()))
                if tokens[-1] == EOS:
                    break
        return tokens[len(prompt) :]
