"""The explorer of collectives: steps of the library's functions, and the time of all of them."""

import json
from typing import Any

import pytest

from jaxpar.cost.communication import Link, all_reduce_seconds
from jaxpar.cost.hardware import find_cluster
from jaxpar.course.frames import run_of
from jaxpar.explore import answer
from jaxpar.explore.collectives import NAMES
from jaxpar.explore.frames import decode, encode, runs

SIZES = [(name, n) for name in NAMES for n in runs()[name]]
NAMED = [f"{name}-{n}" for name, n in SIZES]
QUICK = {("ring_reduce_scatter", "4"), ("tree_broadcast", "3")}


@pytest.mark.parametrize(
    ("name", "n"),
    [
        pytest.param(*one, marks=() if one in QUICK else pytest.mark.full, id=id)
        for one, id in zip(SIZES, NAMED, strict=True)
    ],
)
def test_the_kept_steps_are_those_of_the_library(name: str, n: str) -> None:
    assert json.loads(json.dumps(run_of(name, int(n)))) == runs()[name][n]


@pytest.mark.parametrize("name", NAMES)
def test_steps_come_back_as_they_were(name: str) -> None:
    for run in runs()[name].values():
        steps = {key: run[key] for key in ("given", "frames", "results")}
        assert json.loads(json.dumps(encode(decode(run)))) == steps


@pytest.mark.parametrize(("name", "n"), SIZES, ids=NAMED)
def test_there_are_as_many_pictures_as_steps_and_two(name: str, n: str) -> None:
    first, *_ = answered = [
        answer("collectives", {"algorithm": name, "n": n, "frame": frame}) for frame in (0, 99)
    ]
    assert [one["frame"] for one in answered] == [0, first["frames"] - 1]
    assert len(first["headings"]) == first["frames"] == len(runs()[name][n]["frames"]) + 2
    assert first["svg"] != answered[1]["svg"]


@pytest.mark.parametrize("where", ["inside", "between"])
def test_the_time_is_that_of_the_formula(where: str) -> None:
    form = {"algorithm": "ring_all_reduce", "n": "8", "kilobytes": 4000, "where": where}
    link: Link = getattr(find_cluster("h100"), where)
    numbers = {"latency_seconds": link.latency_seconds, "bytes_per_second": link.bytes_per_second}
    seconds = all_reduce_seconds(4e6, 8, **numbers)
    assert dict(answer("collectives", form)["numbers"])["time"] == f"{seconds * 1e6:,.4g} us"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"algorithm": "recursive_doubling_all_reduce", "n": "6"}, "use one of 2, 4, 8"),
        ({"n": "9"}, "devices is '9'; use one of 2, 3, 4, 5, 6, 7, 8"),
        ({"kilobytes": -1}, "kB on a device is -1; use a number from 0.001"),
    ],
)
def test_bad_forms_are_explained(form: dict[str, Any], words: str) -> None:
    assert words in answer("collectives", form)["error"]
