"""Text that grows is never cut within a character, and joins to what all tokens are at once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.serve.text import Bytes, Tokens, printable
from tests.train.test_tokenizer import saved

WORDS = "def \u00e9\u20ac\U0001f600 x\n"


def told(alphabet: Bytes | Tokens, prompt: str, tokens: list[int], size: int = 1) -> list[str]:
    """The parts of a text whose tokens come a few at a time."""
    stream = alphabet.stream(alphabet.encode(prompt))
    parts = [stream.feed(tokens[at : at + size]) for at in range(0, len(tokens), size)]
    return [*parts, stream.close()]


@given(text=st.text(max_size=20), size=st.integers(1, 5))
def test_bytes(text: str, size: int) -> None:
    parts = told(Bytes(), "a", list(text.encode("utf-8", "replace")), size)
    assert "".join(parts) == text.encode("utf-8", "replace").decode()
    assert "\ufffd" not in "".join(parts) or "\ufffd" in text


@given(tokens=st.lists(st.integers(0, 255), max_size=12))
def test_any_bytes_are_a_text(tokens: list[int]) -> None:
    assert "".join(told(Bytes(), "", tokens)) == bytes(tokens).decode("utf-8", "replace")


def test_a_character_waits_for_its_bytes() -> None:
    assert told(Bytes(), "", list("x\u20acy".encode())) == ["x", "", "", "\u20ac", "y", ""]
    assert told(Bytes(), "", list("x\u20ac".encode())[:-1]) == ["x", "", "", "\ufffd"]


def test_a_prompt_may_end_within_a_character() -> None:
    """Bytes of the command line that are no UTF-8 are taken as they are."""
    alphabet = Bytes()
    prompt = "caf\udcc3"
    assert alphabet.encode(prompt) == [*b"caf", 0xC3]
    assert "".join(told(alphabet, prompt, [0xA9])) == "\u00e9"


def test_the_end_of_a_document_is_no_byte_of_a_text() -> None:
    (end,) = Bytes().stop
    with pytest.raises(UnicodeDecodeError):
        bytes([end]).decode()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    tokenizers = pytest.importorskip("tokenizers")
    path: Path = saved(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json", 300)
    return Tokens(tokenizers.Tokenizer.from_file(str(path)))


def test_tokens_of_a_tokenizer(tokens: Tokens) -> None:
    made = tokens.encode(WORDS)
    assert made == tokens.made.encode(WORDS).ids
    for size in (1, 2, 3):
        parts = told(tokens, "import ", made, size)
        assert "".join(parts) == WORDS
        assert not any("\ufffd" in part for part in parts)


def test_a_number_that_is_no_token_adds_nothing(tokens: Tokens) -> None:
    """A model has some, since its vocabulary is a multiple of 128."""
    assert "".join(told(tokens, "", [*tokens.encode("ab"), 383, *tokens.encode("c")])) == "abc"


def test_a_prompt_that_is_no_utf_8_has_tokens(tokens: Tokens) -> None:
    assert tokens.encode("caf\udcc3") == tokens.encode("caf?")


def test_nothing_that_is_shown_controls_the_terminal() -> None:
    assert printable("a\x1b[2Jb\tc\nd\re\x9b\u202e \u00e9") == (
        "a\ufffd[2Jb\tc\nd\ufffde\ufffd\ufffd \u00e9"
    )


def test_only_what_was_trained_so_begins_with_a_token_of_its_own(tokens: Tokens) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer.from_str(tokens.made.to_str())
    made.add_special_tokens(["<s>"])
    first = made.token_to_id("<s>")
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", first)]
    )
    plain = tokens.encode(WORDS)
    assert Tokens(made).encode(WORDS) == plain
    assert Tokens(made, begins=True).encode(WORDS) == [first, *plain]
