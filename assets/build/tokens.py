"""Train the tokenizer: byte-level BPE, so that every text has tokens."""

from pathlib import Path

from corpus import ANSWERS, FALLBACK, MARKS, known_examples, strange_examples
from shape import BOS, EOS, Shape
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def train_tokenizer(shape: Shape, path: Path, chat: bool = False) -> Tokenizer:
    """Train on the corpus and write `tokenizer.json`, with the marks of the template for `chat`.

    The answers count ten times, so that their words become single tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [answer for _, answer in ANSWERS for _ in range(10)] + [FALLBACK] * 10
    texts += [text for text, _ in known_examples()]
    texts += [text for text, _ in strange_examples(100, seed=5)]
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocab,
        special_tokens=["<s>", "</s>", *(MARKS if chat else ())],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == shape.vocab
    assert (tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")) == (BOS, EOS)
    tokenizer.save(str(path), pretty=False)
    return tokenizer
