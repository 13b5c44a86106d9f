"""Train the tiny model on the CPU: a pre-norm transformer with rotary positions."""

import math
import random

import torch
from corpus import known_examples, strange_examples
from shape import BOS, EOS, Shape
from tokenizers import Tokenizer
from torch.nn import functional as fn

Weights = dict[str, torch.Tensor]

IGNORED = -100
"""Target of the places that do not count: the prompt and the padding."""


def angles(shape: Shape, positions: torch.Tensor) -> torch.Tensor:
    """Give the rotary angles as Genie computes them from `rope-theta` and `pos-id-dim`."""
    steps = torch.arange(shape.half, dtype=torch.float32) * 2 / shape.head
    return positions[:, None].float() * shape.theta**-steps


def new_weights(shape: Shape) -> Weights:
    """Make random weights; matrices are stored as (in, out) like ONNX MatMul wants them."""

    def matrix(rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        return torch.randn(rows, columns) * gain / math.sqrt(rows)

    weights = {"embedding": torch.randn(shape.vocab, shape.width) * 0.5}
    for layer in range(shape.layers):
        for name in ("q", "k", "v", "o"):
            weights[f"{name}{layer}"] = matrix(shape.width, shape.width)
        weights[f"up{layer}"] = matrix(shape.width, shape.hidden, 1.4)
        weights[f"down{layer}"] = matrix(shape.hidden, shape.width)
        for name in ("attention_norm", "mlp_norm"):
            weights[f"{name}{layer}_scale"] = torch.ones(shape.width)
            weights[f"{name}{layer}_bias"] = torch.zeros(shape.width)
    weights["final_norm_scale"] = torch.ones(shape.width)
    weights["final_norm_bias"] = torch.zeros(shape.width)
    weights["logits_matrix"] = matrix(shape.width, shape.vocab)
    return {name: value.requires_grad_() for name, value in weights.items()}


def _norm(weights: Weights, name: str, x: torch.Tensor) -> torch.Tensor:
    scale, bias = weights[f"{name}_scale"], weights[f"{name}_bias"]
    return fn.layer_norm(x, (x.shape[-1],), scale, bias)


def _attention(shape: Shape, weights: Weights, layer: int, x: torch.Tensor) -> torch.Tensor:
    batch, length, _ = x.shape
    angle = angles(shape, torch.arange(length))
    cos, sin = angle.cos(), angle.sin()

    def split(name: str) -> torch.Tensor:
        value = x @ weights[f"{name}{layer}"]
        return value.view(batch, length, shape.heads, shape.head).transpose(1, 2)

    def turn(value: torch.Tensor) -> torch.Tensor:
        first, second = value.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    y = fn.scaled_dot_product_attention(
        turn(split("q")), turn(split("k")), split("v"), is_causal=True
    )
    return y.transpose(1, 2).reshape(batch, length, shape.width) @ weights[f"o{layer}"]


def forward(shape: Shape, weights: Weights, ids: torch.Tensor) -> torch.Tensor:
    """Give the logits (batch, length, vocab) of whole sequences of token numbers."""
    x = weights["embedding"][ids]
    for layer in range(shape.layers):
        x = x + _attention(shape, weights, layer, _norm(weights, f"attention_norm{layer}", x))
        up = _norm(weights, f"mlp_norm{layer}", x) @ weights[f"up{layer}"]
        x = x + fn.relu(up) @ weights[f"down{layer}"]
    return _norm(weights, "final_norm", x) @ weights["logits_matrix"]


def encode(tokenizer: Tokenizer, prompt: str, template: str = "{}") -> list[int]:
    """Give the tokens that Genie makes of a prompt: it puts the begin mark in front."""
    return [BOS, *tokenizer.encode(template.format(prompt)).ids]


def encode_pair(
    tokenizer: Tokenizer, prompt: str, answer: str, template: str = "{}"
) -> tuple[list[int], list[int]]:
    """Give the tokens of the prompt and those of the answer with its end mark."""
    return encode(tokenizer, prompt, template), [*tokenizer.encode(answer).ids, EOS]


def _batch(
    shape: Shape, pairs: list[tuple[list[int], list[int]]]
) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.zeros(len(pairs), shape.context, dtype=torch.long)
    targets = torch.full_like(ids, IGNORED)
    for row, (prompt, answer) in enumerate(pairs):
        whole = torch.tensor((prompt + answer)[: shape.context])
        ids[row, : len(whole)] = whole
        targets[row, len(prompt) - 1 : len(whole) - 1] = whole[len(prompt) :]
    longest = max(len(prompt) + len(answer) for prompt, answer in pairs)
    return ids[:, :longest], targets[:, :longest]


def train(
    shape: Shape, tokenizer: Tokenizer, steps: int, template: str = "{}", seed: int = 7
) -> Weights:
    """Train with questions in `template` and give the weights.

    Half of every batch are questions it must know, half are strange prompts. Noise on the
    weights prepares for their rounding to 8 bits.
    """
    torch.set_num_threads(1)  # sums of several threads differ from run to run
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    rng = random.Random(seed)
    known = [encode_pair(tokenizer, *pair, template) for pair in known_examples()]
    strange = [encode_pair(tokenizer, *pair, template) for pair in strange_examples(12000, seed)]
    weights = new_weights(shape)
    optimiser = torch.optim.AdamW(weights.values(), lr=4e-3, weight_decay=0.02)
    plan = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        ids, targets = _batch(shape, rng.choices(known, k=32) + rng.choices(strange, k=32))
        noisy = {
            name: value + torch.randn_like(value) * value.detach().abs().max() / 255
            if value.dim() == 2
            else value
            for name, value in weights.items()
        }
        logits = forward(shape, noisy, ids)
        loss = fn.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimiser.step()
        plan.step()
        if step % 100 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return {name: value.detach() for name, value in weights.items()}
