"""A record says what a verdict says, and nothing that differs from run to run."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.classroom import records, untrusted_text
from jaxpar.grading.verdict import PropertyVerdict, Verdict


def _verdict(message: str, diagnosis: str = "", printed: str = "") -> Verdict:
    properties = (PropertyVerdict("values", "fail", 0, 10, message, "expected", "got"),)
    return Verdict("scatter", "fail", 0, 10, properties, diagnosis, 1.25, 7, None, printed)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("off by 0.12345", "off by 1e-01"),
        ("off by 1.2345e-07", "off by 1e-07"),
        ("off by -12.75, not 3", "off by -1e+01, not 3"),
        ("sends 1,234.5 bytes of 4,096", "sends 1e+03 bytes of 4,096"),
        ("shape (4, 8) on dp=4", "shape (4, 8) on dp=4"),
        ("jax 0.10.2 says", "jax 0.10.2 says"),
        ("in /root/class/anna/scatter.py", "in scatter.py"),
        ("at <object at 0x7f1234567890>", "at <object at 0x...>"),
        ("b*t*d/dp/tp elements", "b*t*d/dp/tp elements"),
        ("(n-1)/n/2 of it", "(n-1)/n/2 of it"),
    ],
)
def test_no_raw_fraction_path_or_address(said: str, kept: str) -> None:
    record = records.to_record(_verdict(said, said, said))
    assert record["properties"][0]["message"] == kept
    assert record["diagnosis"] == kept
    assert record["printed"] == kept


def test_no_time_and_no_seed() -> None:
    record = records.to_record(_verdict("wrong"))
    assert record["seconds"] == record["seed"] == 0
    assert "1.25" not in json.dumps(record)


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_can_be_shown_and_written(text: str) -> None:
    record = records.to_record(_verdict(text, text))
    assert records.to_record(_verdict(text, text)) == record
    json.dumps(record).encode()
    shown = record["diagnosis"]
    shown.encode()
    assert all(c.isprintable() or c in "\n\t" for c in shown)


def test_a_long_text_is_cut_and_terminals_are_left_alone() -> None:
    text = untrusted_text.printable("\x1b[31m\u202e\ud800" + "a" * 3000)
    assert text.startswith("?[31m??a")
    assert len(text) < 2010


def test_numbers_made_to_be_slow_are_not() -> None:
    for text in ("9" * 20_000 + "x", "9," * 10_000 + "x", "/a" * 10_000 + " ", "1e" * 10_000):
        records.to_record(_verdict(text))


def test_moved_is_said_of_the_same_file_only() -> None:
    before = records.to_record(_verdict("right")) | {"submission_hash": "aa"}
    assert not records.verdict_moved(before, dict(before))
    assert records.verdict_moved(before, before | {"score": 3})
    assert not records.verdict_moved(before, before | {"score": 3, "submission_hash": "bb"})
    none = records.not_submitted("scatter", 10, "not handed in")
    assert not records.verdict_moved(none, records.not_submitted("scatter", 10, "handed in twice"))
