"""Requests to a reader may be sent ahead, and each has its own reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jaxpar.contracts.base import with_drawn
from jaxpar.grading.deadline import Deadline
from jaxpar.grading.in_process import InProcessPool
from jaxpar.grading.messages import ProgramKey
from jaxpar.grading.processes import ChildEnded
from jaxpar.grading.program_judge import unknown_references
from jaxpar.grading.reader_client import ReaderClient

WHERE = "jaxpar.contracts.collectives.mean_over_devices"
CONTRACT = with_drawn(WHERE, 20)
FORWARD: ProgramKey = ("forward", 0)
GRADIENT: ProgramKey = ("gradient", 0)


@pytest.fixture
def reader() -> Iterator[ReaderClient]:
    client = ReaderClient(InProcessPool(WHERE), WHERE, CONTRACT)
    yield client
    client.close()


@pytest.mark.parametrize("asked", [[FORWARD, GRADIENT], [GRADIENT, FORWARD], [GRADIENT] * 2])
def test_what_was_begun_is_answered_in_any_order(
    reader: ReaderClient, asked: list[ProgramKey]
) -> None:
    right = {program: reader.export("reference", program) for program in (FORWARD, GRADIENT)}
    assert right[FORWARD] != right[GRADIENT]
    reader.begin_exports([FORWARD, GRADIENT])
    for program in asked:
        assert reader.export("reference", program) == right[program]


def test_a_reader_that_dies_meanwhile_says_so_when_it_is_asked() -> None:
    class Dead:
        left = 1  # it takes the job

        def send(self, frame: dict, blobs: Any = None) -> None:
            self.left -= 1
            if self.left < 0:
                raise ChildEnded("killed")

        def receive(self, deadline: Deadline) -> Any:
            raise ChildEnded("killed")

    class DeadPool(InProcessPool):
        def take(self, module: str) -> Any:
            return Dead()

    client = ReaderClient(DeadPool(WHERE), WHERE, CONTRACT)
    client.begin_exports([FORWARD])
    with pytest.raises(ChildEnded):
        client.export("reference", FORWARD)


def test_the_programs_that_are_needed_first_are_those_of_the_stub() -> None:
    fresh = with_drawn(WHERE, 21)
    cases = range(len(fresh.visible))
    assert list(unknown_references(fresh)) == [
        (which, index) for index in cases for which in ("forward", "gradient")
    ]
