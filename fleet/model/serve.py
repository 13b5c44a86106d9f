"""A model as a service, as a playbook wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PORT = 8000
LOOPBACK = ("127.0.0.1", "::1", "localhost")

# Prompts of model families, as their own chat templates write them for plain turns.
# Sources: the chat_template of meta-llama/Llama-3.1-8B-Instruct, Qwen/Qwen2.5-7B-Instruct
# (ChatML) and mistralai/Mistral-7B-Instruct-v0.3. `plain`: one question, no turns.
TEMPLATES: Mapping[str, Mapping[str, str]] = {
    "plain": {"user": "{content}"},
    "llama3": {
        "begin": "<|begin_of_text|>",
        **{
            role: f"<|start_header_id|>{role}<|end_header_id|>\n\n{{content}}<|eot_id|>"
            for role in ("system", "user", "assistant")
        },
        "end": "<|start_header_id|>assistant<|end_header_id|>\n\n",
    },
    "chatml": {
        **{
            role: f"<|im_start|>{role}\n{{content}}<|im_end|>\n"
            for role in ("system", "user", "assistant")
        },
        "end": "<|im_start|>assistant\n",
    },
    "mistral": {"begin": "<s>", "user": "[INST] {content}[/INST]", "assistant": " {content}</s>"},
}


@dataclass(frozen=True)
class ServeSpec:
    """`backend` None: the one for the bundle. Limits in tokens, bytes and seconds.

    `queue`: requests that may wait beside the one that runs. `template`: role → text with
    `{content}`, and what stands before (`begin`) and after (`end`); None: no chat.
    """

    backend: str | None = None
    port: int = DEFAULT_PORT
    bind: str = LOOPBACK[0]
    queue: int = 64
    max_tokens: int = 512
    max_prompt_bytes: int = 32 << 10
    request_timeout: float = 300.0
    stop_timeout: float = 20.0
    template: Mapping[str, str] | None = None

    @property
    def private(self) -> bool:
        """Only the device itself reaches it; others need a tunnel."""
        return self.bind in LOOPBACK
