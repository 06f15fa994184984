"""The catalogue of sentences is one, whatever files it stands in."""

import pytest

from jaxpar.contracts.sentences import SENTENCES, merge
from jaxpar.grading.classroom.record import cleaned


def test_a_name_stands_for_one_mistake() -> None:
    assert merge({"a": "One."}, {"b": "Two."}) == {"a": "One.", "b": "Two."}
    with pytest.raises(ValueError, match="two mistakes are named b; rename one"):
        merge({"a": "One.", "b": "Two."}, {"b": "Three."})


def test_a_sentence_is_one_sentence() -> None:
    assert [name for name, text in SENTENCES.items() if not text.endswith(".")] == []


def test_a_sentence_tells_of_one_mistake() -> None:
    """A class is told of its mistakes by name, and the name is found by the sentence."""
    by_sentence: dict[str, list[str]] = {}
    for name, text in SENTENCES.items():
        by_sentence.setdefault(cleaned(text), []).append(name)
    assert [names for names in by_sentence.values() if len(names) > 1] == []
