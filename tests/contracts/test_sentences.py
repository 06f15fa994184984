"""The catalogue of sentences is one, whatever files it stands in."""

import pytest

from jaxpar.contracts.sentences import SENTENCES, merge


def test_a_name_stands_for_one_mistake() -> None:
    assert merge({"a": "One."}, {"b": "Two."}) == {"a": "One.", "b": "Two."}
    with pytest.raises(ValueError, match="two mistakes are named b; rename one"):
        merge({"a": "One.", "b": "Two."}, {"b": "Three."})


def test_a_sentence_is_one_sentence() -> None:
    assert [name for name, text in SENTENCES.items() if not text.endswith(".")] == []
