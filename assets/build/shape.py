"""The sizes of the tiny model, in one place because Genie's configuration repeats them."""

from dataclasses import dataclass

BOS, EOS = 0, 1
"""Token numbers of `<s>` and `</s>`; the tokenizer's trainer gives specials the first numbers."""

MASKED = -50.0
"""What Genie's attention mask holds, after dequantisation, where a token must not look."""


@dataclass(frozen=True)
class Shape:
    """Sizes of the model."""

    vocab: int = 480
    context: int = 128
    width: int = 64
    heads: int = 4
    hidden: int = 128
    layers: int = 2
    theta: float = 10000.0

    @property
    def head(self) -> int:
        """Width of one attention head; `kv-dim` in Genie's configuration."""
        return self.width // self.heads

    @property
    def half(self) -> int:
        """Number of rotary frequencies; `pos-id-dim` in Genie's configuration."""
        return self.head // 2
