"""Asks one question of an onnxruntime-genai folder (the working folder) on the NPU.

The packages come from a folder of the release, never from the system. Standard output has only the
generated text, as it is generated. Exit status: 0 done, 10 bad request (the prompt does not fit the
context), 11 no model (the first cause is on standard error), 12 the loop failed, 124 timeout.

Source: the Python API of onnxruntime-genai 0.18 (Config, Model, Tokenizer, GeneratorParams,
Generator) and of plug-in providers (register_execution_provider_library).
"""

import argparse
import json
import os
import sys
import threading
import time
from typing import Any

BAD, NO_MODEL, FAILED, LATE = 10, 11, 12, 124
# For a decoder or a part of one. If any of its nodes would run on the CPU, it does not open.
NPU_ALONE = {"session_options": {"session.disable_cpu_ep_fallback": "1"}}


def opened(genai: Any, qnn: Any, *, npu_alone: "bool | list[str]") -> "tuple[Any, Any]":
    """Return (model, tokenizer) of the working folder. `npu_alone`: True, or parts of a
    pipeline.
    """
    genai.register_execution_provider_library(qnn.get_ep_name(), qnn.get_library_path())
    config = genai.Config(".")
    if npu_alone:
        parts = npu_alone if isinstance(npu_alone, list) else []
        decoder = {"pipeline": [dict.fromkeys(parts, NPU_ALONE)]} if parts else NPU_ALONE
        config.overlay(json.dumps({"model": {"decoder": decoder}}))
    model = genai.Model(config)
    return model, genai.Tokenizer(model)


def asked(
    genai: Any, model: Any, tokenizer: Any, spec: "dict[str, Any]", out: int
) -> "dict[str, Any]":
    """Generate: the prompt in one pass, then token by token, each written at once."""
    ids = tokenizer.encode(spec["prompt"])
    count, limit, context = len(ids), spec["max_tokens"], spec["context"]
    if context is not None and count >= context:
        return {"error": "the prompt has %d tokens, the context has %d" % (count, context)}
    filled = -(-count // spec["window"]) * spec["window"]  # genai pads the prompt to whole windows
    whole = filled + limit if context is None else min(filled + limit, context)
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=whole)
    began = time.perf_counter()
    generator = genai.Generator(model, params)
    generator.append_tokens(ids)
    pieces, texts, times, tokens = tokenizer.create_stream(), [], [], []
    while not generator.is_done():
        generator.generate_next_token()
        times.append(time.perf_counter() - began)
        tokens.append(int(generator.get_next_tokens()[0]))
        piece = pieces.decode(tokens[-1])
        texts.append(piece)
        os.write(out, piece.encode("utf-8", "replace"))
    full = filled + len(times) >= whole
    return {
        "text": "".join(texts),
        "tokens": tokens,
        "prompt_tokens": count,
        "token_seconds": times,
        "finish": "token-limit" if full else "eos",
        "cut_by_context": full and whole < filled + limit,
    }


def work(arguments: argparse.Namespace, spec: "dict[str, Any]", outcome: "dict[str, Any]") -> int:
    """Do the work, fill in the outcome, and return the exit status."""
    out = os.dup(1)
    os.dup2(2, 1)  # QNN's own log goes to descriptor 1
    sys.path.insert(0, arguments.site)
    began = time.perf_counter()
    try:
        import onnxruntime_genai as genai
        import onnxruntime_qnn as qnn

        alone = spec["npu_alone"] if spec["overlay"] else False
        model, tokenizer = opened(genai, qnn, npu_alone=alone)
    except Exception as error:
        sys.stderr.write("cannot load the model: %s\n" % error)
        outcome["error"] = str(error)
        return NO_MODEL
    outcome["npu_alone"] = spec["npu_alone"]
    outcome["init_seconds"] = time.perf_counter() - began
    if arguments.check:
        return 0
    try:
        outcome.update(asked(genai, model, tokenizer, spec, out))
    except Exception as error:
        sys.stderr.write("the generation failed: %s\n" % error)
        outcome["error"] = str(error)
        return FAILED
    return BAD if "error" in outcome else 0


def main() -> None:
    """Read the request, do the work, write the outcome."""
    parser = argparse.ArgumentParser()
    for name in ("--site", "--spec", "--outcome"):
        parser.add_argument(name)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.spec, encoding="utf-8") as stream:
        spec = json.load(stream)
    late = threading.Timer(arguments.timeout, lambda: os._exit(LATE))
    late.daemon = True
    late.start()
    outcome: dict[str, Any] = {}
    status = work(arguments, spec, outcome)
    part = arguments.outcome + ".part"
    if os.path.lexists(part):
        os.unlink(part)
    with open(part, "x", encoding="utf-8") as stream:
        json.dump(outcome, stream)
    os.replace(part, arguments.outcome)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a provider that failed may crash on exit


if __name__ == "__main__":
    main()
