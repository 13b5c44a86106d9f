"""The shipped chat templates against the templates of the models, rendered by transformers.

FLEET_CHAT_TEMPLATES names a folder with the models' own templates, as NAME.jinja for each name
that fleet ships. They are not ours to commit.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fleet.config.chat import shipped, shipped_names

pytestmark = pytest.mark.programs
CONVERSATIONS = 20
WORDS = (
    "Hi",
    "  two  spaces ",
    "line\nbreak",
    "ü €",
    "",
    "<think>\nx\n</think>\n\nAnswer",
    "{{ x }}",
)


def conversation(seed: int) -> list[dict[str, str]]:
    draw = random.Random(seed)
    talk = [{"role": "system", "content": "Be short."}] if draw.random() < 0.5 else []
    for _ in range(draw.randint(0, 3)):
        talk.append({"role": "user", "content": draw.choice(WORDS)})
        talk.append({"role": "assistant", "content": draw.choice(WORDS)})
    return [*talk, {"role": "user", "content": draw.choice(WORDS)}]


@pytest.mark.parametrize("name", shipped_names())
def test_the_prompt_is_that_of_the_model(name: str) -> None:
    folder = os.environ.get("FLEET_CHAT_TEMPLATES")
    path = Path(folder or ".") / f"{name}.jinja"
    if not folder or not path.is_file():
        pytest.skip(f"FLEET_CHAT_TEMPLATES names no folder with {name}.jinja of the model")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    ours = shipped(name)
    model = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, "x")),
        bos_token=ours.bos_token or None,
        eos_token=ours.eos_token or None,
        chat_template=path.read_text("utf-8"),
    )
    for seed in range(CONVERSATIONS):
        talk = conversation(seed)
        for think in (None, True, False) if name == "qwen" else (None,):
            switch = {} if think is None else {"enable_thinking": think}
            expected = model.apply_chat_template(
                talk, tokenize=False, add_generation_prompt=True, **switch
            )
            assert ours.render(talk, think=think) == expected, (seed, think)
