"""Writes a tiny Llama model with random weights as GGUF: python make_gguf.py FILE.

The tokenizer is that of assets/tiny-genie. What it says means nothing; it is here so that the real
programs of llama.cpp have something to run. Needs gguf and numpy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np

TOKENIZER = Path(__file__).parents[1] / "tiny-genie" / "tokenizer.json"
WIDTH, LAYERS, HEADS, INNER, CONTEXT = 64, 2, 4, 128, 512
NORMAL, CONTROL = 1, 3  # token types of gguf
BOS, EOS = 0, 1


def add_tokenizer(writer: gguf.GGUFWriter) -> int:
    """The byte-level BPE of the Genie bundle; gives the size of its vocabulary."""
    model = json.loads(TOKENIZER.read_text("utf-8"))["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if at <= EOS else NORMAL for at in range(len(tokens))])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    return len(tokens)


def add_shape(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    """The metadata that llama.cpp asks for."""
    writer.add_name("fleet-tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def add_weights(writer: gguf.GGUFWriter, vocabulary: int) -> None:
    """Random ones, the same in each build."""
    random = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> None:
        values = random.standard_normal(shape) * 0.1
        writer.add_tensor(f"{name}.weight", values.astype(np.float16))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    weights("token_embd", vocabulary, WIDTH)
    norm("output_norm")
    weights("output", vocabulary, WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        norm(f"{block}attn_norm")
        norm(f"{block}ffn_norm")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(block + name, WIDTH, WIDTH)
        weights(f"{block}ffn_gate", INNER, WIDTH)
        weights(f"{block}ffn_up", INNER, WIDTH)
        weights(f"{block}ffn_down", WIDTH, INNER)


def main() -> None:
    """Write the file."""
    writer = gguf.GGUFWriter(sys.argv[1], "llama")
    vocabulary = add_tokenizer(writer)
    add_shape(writer, vocabulary)
    add_weights(writer, vocabulary)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
