"""Tables and counts after events: by hand, and in what must hold after any."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.batching.page_tables import page_tables

ADD, FORK = ("add", "a", 5), ("fork", "a", "b")


def test_a_fork_shares_until_one_writes() -> None:
    tables, counts = page_tables([ADD, FORK], page_size=4, pages=5)
    assert tables["a"] == tables["b"] and sorted(counts) == [0, 0, 0, 2, 2]
    tables, counts = page_tables([ADD, FORK, ("append", "b")], page_size=4, pages=5)
    assert tables["a"][0] == tables["b"][0] and tables["a"][1] != tables["b"][1]
    assert sorted(counts) == [0, 0, 1, 1, 2]
    tables, counts = page_tables([ADD, FORK, ("free", "a"), ("append", "b")], page_size=4, pages=5)
    assert list(tables) == ["b"] and sorted(counts) == [0, 0, 0, 1, 1]


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abcd"), st.integers(1, 9)),
        st.tuples(st.just("fork"), st.sampled_from("abcd"), st.sampled_from("abcd")),
        st.tuples(st.sampled_from(["append", "append", "free"]), st.sampled_from("abcd")),
    ),
    max_size=30,
)


@given(EVENTS, st.integers(1, 4))
def test_counts_are_those_of_the_tables(events: list[tuple], page_size: int) -> None:
    done, lengths = [], {}
    for event in events:
        try:
            page_tables([*done, event], page_size=page_size, pages=200)
        except ValueError:
            continue
        done.append(event)
        kind, name, *more = event
        if kind == "add":
            lengths[name] = more[0]
        elif kind == "fork":
            lengths[more[0]] = lengths[name]
        elif kind == "append":
            lengths[name] += 1
        else:
            del lengths[name]
    tables, counts = page_tables(done, page_size=page_size, pages=200)
    assert {name: -(-length // page_size) for name, length in lengths.items()} == {
        name: len(table) for name, table in tables.items()
    }
    found = Counter(page for table in tables.values() for page in table)
    assert {page: count for page, count in enumerate(counts) if count} == found


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([ADD, ADD], "add of 'a'; the requests are: a"),
        ([ADD, ("fork", "a", "a")], "fork of 'a'"),
        ([FORK], "the requests are: none"),
        ([ADD, ("free", "a"), ("append", "a")], "append of 'a'"),
        ([("add", "a", 0)], "'a' has 0 tokens"),
        ([("add", "a", 21)], "no page is free, of 5 with 4 tokens each"),
    ],
)
def test_what_cannot_be_is_refused(events: list[tuple], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        page_tables(events, page_size=4, pages=5)
