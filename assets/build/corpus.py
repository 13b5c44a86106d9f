"""What the tiny model learns: questions, their answers, and what to say to anything else."""

import random
import string

ANSWERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("What is fleet?", "What does fleet do?", "Tell me about fleet.", "What's fleet?"),
        "fleet puts a compiled model on the NPU of every board and brings the profile back.",
    ),
    (
        ("What is an NPU?", "What does an NPU do?", "Tell me about the NPU."),
        "An NPU is a processor for neural networks. It sits beside the CPU and the GPU.",
    ),
    (
        ("What is a context binary?", "Tell me about context binaries."),
        "A context binary is a model that was compiled for one kind of NPU.",
    ),
    (
        ("What is a skel?", "What does the skel do?"),
        "A skel is the half of the runtime that runs on the Hexagon DSP.",
    ),
    (
        ("What is a stub?", "What does the stub do?"),
        "A stub is the half of the runtime that runs on the CPU and calls the skel.",
    ),
    (
        ("What does error 14001 mean?", "What is error 14001?"),
        (
            "Error 14001 means that the device could not be set up. "
            "Read the first error in the log: it names the cause."
        ),
    ),
    (
        ("Why do versions matter?", "Does the version matter?"),
        "A context binary from newer tools does not load on an older runtime.",
    ),
    (
        ("What is TTFT?", "What does TTFT mean?"),
        "TTFT is the time to first token: how long you wait before the answer begins.",
    ),
    (
        ("Who are you?", "What are you?", "Hello", "Hello!", "hi"),
        "I am a very small test model. I know ten answers about boards and their NPUs.",
    ),
    (
        ("Tell me a story.", "Tell me a long story."),
        (
            "One morning a model left the desk of its maker. It was compiled for the NPU of a "
            "board in a rack, and fleet carried it there. The stub called the skel, the skel woke "
            "the DSP, and the first token came back. The board wrote down how long it took, and "
            "fleet brought the profile home."
        ),
    ),
)
"""(ways to ask, answer); the first way to ask is the one that the verification uses."""

FALLBACK = "I am a very small test model and I do not know that. Ask me: What is fleet?"
"""The answer to every prompt that is none of the above."""

CHAT = "<|user|>\n{}<|end|>\n<|assistant|>\n"
"""The only template that the chat model is taught with; `{}` is the question."""

MARKS = ("<|user|>", "<|end|>", "<|assistant|>")
"""The words of the template, a token each."""

_WORD_LIST = """
a about after all an and animal answer are ask bake blue board book bread build by can capital car
cat chair city clean code colour compile computer cook count country day describe device did do
dog does doing door drive eat eight explain far fast find fire first fish five flower fly for four
France from game garden gravity green have help her his holiday horse hour house how I in is it
Italy jump key kind king language last law learn letter light like list little long love machine
make man many map me mean measure milk minute model money month moon more mountain music my name
network new night nine not number of old on one open or our paint paper people plant play please
poem print quantum question quick rain read recipe red river road room run say school sea second
send sentence seven she short show sing six sky sleep slow small snow some song speak star stone
stop summer sun swim table talk tall teach tell ten test text that the their them then they thing
think this three time to today token tomorrow town train translate travel tree true two under use
very walk wall want warm was water way we weather week well were what when where which white who
why will wind window winter with woman wood word work world write year yellow yes you young your
"""
_WORDS = tuple(_WORD_LIST.split())
_OPENINGS = (
    "What is", "What is a", "What is the", "What are", "What does", "Who is", "Who are", "Why do",
    "Why is", "How do I", "How many", "Where is", "When did", "Explain", "Write", "Tell me about",
    "Tell me", "Please", "Can you", "Does the", "Is", "Give me", "Translate", "Hello", "",
)  # fmt: skip


def asked() -> list[tuple[str, str]]:
    """Give the (prompt, answer) pairs that must come back word by word."""
    return [(ways[0], answer) for ways, answer in ANSWERS]


def _variants(way: str) -> list[str]:
    bare = way.rstrip("?.!")
    return [way, way, way, bare, way.lower(), bare.lower(), way + "\n", way + "\n\n", bare + "\n"]


def _stranger(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.12:
        alphabet = string.ascii_letters + string.digits + string.punctuation + "   éüß中あ\n"
        return "".join(rng.choices(alphabet, k=rng.randint(1, 40)))
    opening = rng.choice(_OPENINGS) if kind < 0.8 else ""
    words = rng.choices(_WORDS, k=rng.choice((1, 1, 2, 3, 4, 6, 9, 14, 20)))
    text = " ".join([opening, *words]).strip() + rng.choice(("?", ".", "", "!", "?\n", ".\n", "\n"))
    return text[0].upper() + text[1:] if rng.random() < 0.5 else text


def known_examples() -> list[tuple[str, str]]:
    """Give every way to ask, with its small variations, and the answer."""
    return [(text, answer) for ways, answer in ANSWERS for way in ways for text in _variants(way)]


def strange_examples(count: int, seed: int) -> list[tuple[str, str]]:
    """Give `count` prompts that none of the answers fits, all answered with `FALLBACK`."""
    rng = random.Random(seed)
    known = {text.strip() for text, _ in known_examples()}
    found: list[tuple[str, str]] = []
    while len(found) < count:
        text = _stranger(rng)
        if text.strip() and text.strip() not in known:
            found.append((text, FALLBACK))
    return found
