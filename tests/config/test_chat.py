"""Chat templates: the shipped ones, those of a bundle, and `chat:` in a playbook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from fleet.config.chat import ChatTemplate, shipped, shipped_names, template_of_bundle
from fleet.config.playbook import load_playbook, playbook_errors
from fleet.model.errors import InputError

ROOT = Path(__file__).parents[2]
ASK = [{"role": "user", "content": "Hi"}]
TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "<think>\nwell\n</think>\n\nHello "},
    {"role": "user", "content": "Bye"},
]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


ANSWER = "<|start_header_id|>assistant<|end_header_id|>\n\n"
HI = "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
PROMPTS = {
    "chatml": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "plain": "Hi",
    "llama3": f"<|begin_of_text|>{HI}{ANSWER}",
    "qwen": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "phi": "<|user|>\nHi<|end|>\n<|assistant|>\n",
    "mistral": "<s>[INST] Hi[/INST]",
    "nemotron": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n<|eot_id|>"
    f"{HI}{ANSWER}",
}


def test_each_shipped_template_has_its_prompt() -> None:
    assert sorted(PROMPTS) == shipped_names()


@pytest.mark.parametrize(("name", "prompt"), PROMPTS.items())
def test_one_question(name: str, prompt: str) -> None:
    assert shipped(name).render(ASK) == prompt


def test_every_shipped_template_takes_a_conversation() -> None:
    for name in shipped_names():
        text = shipped(name).render(TALK)
        assert text.index("Hi") < text.index("Hello") < text.index("Bye"), name
        assert "Be short." in text, name


def test_thinking_is_switched_where_the_model_can() -> None:
    qwen = shipped("qwen")
    assert qwen.render(ASK, think=False).endswith("assistant\n<think>\n\n</think>\n\n")
    assert qwen.render(ASK, think=True) == qwen.render(ASK)
    assert "well" not in qwen.render(TALK)
    assert "detailed thinking on<|eot_id|>" in shipped("nemotron").render(ASK, think=True)
    with pytest.raises(InputError, match="llama3 has no switch for thinking"):
        shipped("llama3").render(ASK, think=False)


def test_the_prompt_of_the_published_run() -> None:
    """playbooks/nemotron-iq9075.yaml has that prompt byte for byte."""
    messages = [{"role": "user", "content": "Explain gravity in one short English sentence."}]
    path = ROOT / "playbooks" / "nemotron-iq9075.yaml"
    run = yaml.safe_load(path.read_text("utf-8"))["run"]["prompt"]
    assert shipped("nemotron").render(messages, think=False) == run


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("{% for %}", "is wrong in line 1"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[9].content.upper() }}", "does not accept this conversation"),
        ("{% for i in range(90000) %}{{ 'x' * 100 }}{% endfor %}", "larger than 1 MB"),
        ("{{ messages.__class__.__mro__ }}", "does not accept this conversation"),
        ("{{ messages.append(1) }}", "does not accept this conversation"),
    ],
)
def test_a_template_that_fails_is_one_error(source: str, error: str) -> None:
    with pytest.raises(InputError, match=error) as caught:
        ChatTemplate(source, "x.jinja").render(ASK)
    assert "x.jinja" in caught.value.message


def test_what_templates_of_models_use() -> None:
    source = (
        "{%- for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m | tojson }}"
        "{% endfor %}{{ strftime_now is defined }}"
    )
    text = ChatTemplate(source, "x").render([*ASK, {"role": "user", "content": "é"}])
    assert text == '{"role": "user", "content": "é"}False'


def bundle(tmp_path: Path, **tokenizer: object) -> Path:
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "genie_config.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


def playbook(tmp_path: Path, run: str) -> Path:
    path = tmp_path / "playbook.yaml"
    path.write_text(f"name: n\nbundle: bundle\nrun: {run}\n")
    return path


def test_the_template_of_the_bundle_is_the_default(tmp_path: Path) -> None:
    bundle(tmp_path, chat_template="{{ bos_token }}" + CHATML, bos_token={"content": "<b>"})
    loaded = load_playbook(playbook(tmp_path, '{chat: {system: "a\\nb", user: Hi}}'))
    assert loaded.run is not None
    assert loaded.run.prompt == (
        "<b><|im_start|>system\na\nb<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_other_places_of_a_template_in_a_bundle(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    folder = bundle(tmp_path, chat_template=named, eos_token=None)
    found = template_of_bundle(folder)
    assert found is not None
    assert (found.render(ASK), found.eos_token) == ("yes", "")
    (folder / "chat_template.jinja").write_text("own")
    found = template_of_bundle(folder)
    assert found is not None
    assert found.render(ASK) == "own"


def test_a_template_file_beside_the_playbook(tmp_path: Path) -> None:
    bundle(tmp_path)
    (tmp_path / "mine.jinja").write_text("Q: {{ messages[-1].content }}\nA:")
    loaded = load_playbook(playbook(tmp_path, "{chat: {template: mine.jinja, user: Hi}}"))
    assert loaded.run is not None
    assert loaded.run.prompt == "Q: Hi\nA:"


@pytest.mark.parametrize(
    ("run", "error", "hint"),
    [
        ("{chat: {user: Hi}}", "has no chat template", "name one: template: chatml"),
        ("{chat: {template: qwn, user: Hi}}", "no chat template 'qwn'", "mean 'qwen'?"),
        ("{chat: {template: no.jinja, user: Hi}}", "cannot read", "text file"),
        ("{chat: {template: phi, user: Hi, think: off}}", "no switch for thinking", "remove"),
        ("{chat: {template: phi}}", "user", ""),
        ("{chat: {template: phi, user: Hi}, prompt: Hi}", "both prompt and chat", "remove one"),
        ("{chat: {template: qwen, user: Hi, think: maybe}}", "think", ""),
    ],
)
def test_mistakes_have_a_place_and_a_cure(tmp_path: Path, run: str, error: str, hint: str) -> None:
    bundle(tmp_path)
    (found,) = playbook_errors(playbook(tmp_path, run))
    assert error in found.message
    assert hint in found.hint
    assert found.position is not None
    assert found.position.line == 3


@pytest.mark.parametrize("word", ["on", "off", '"on"', '"off"', "true", "false"])
def test_on_and_off_are_words_of_yaml_or_text(tmp_path: Path, word: str) -> None:
    bundle(tmp_path)
    run = f"{{chat: {{template: qwen, user: Hi, think: {word}}}}}"
    loaded = load_playbook(playbook(tmp_path, run))
    assert loaded.run is not None
    assert ("<think>" in loaded.run.prompt) is (word.strip('"') in {"off", "false"})


def test_a_typed_prompt_without_the_words_of_the_template_has_a_warning(tmp_path: Path) -> None:
    bundle(tmp_path, chat_template=CHATML)
    (warning,) = load_playbook(playbook(tmp_path, "{prompt: Hi}")).warnings
    assert "does not contain '<|im_end|>\\n<|im_start|>assistant'" in warning
    assert "chat: {user: ...}" in warning
    good = '{prompt: "<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n"}'
    assert load_playbook(playbook(tmp_path, good)).warnings == ()
