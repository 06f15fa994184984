"""A pool keeps the spare processes that the next judgement will take."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from jaxpar.contracts.base import Kind
from jaxpar.grading.processes import READER, WORKER, Pool


@pytest.fixture
def started() -> list[str]:
    """The modules that were started, in this order."""
    return []


@pytest.fixture
def pool(started: list[str]) -> Pool:
    """A pool whose children wait for the end of their standard input."""

    def start(module: str) -> subprocess.Popen[bytes]:
        started.append(module)
        pipe = subprocess.PIPE
        waits = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
        return subprocess.Popen(waits, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)

    return Pool(start=start)


@pytest.mark.parametrize(
    ("kind", "taken"),
    [("program", [WORKER, READER]), ("value", [WORKER] * 2), ("schedule", [WORKER] * 2)],
)
def test_a_judgement_waits_for_no_start(
    pool: Pool, started: list[str], kind: Kind, taken: list[str]
) -> None:
    with pool:
        pool.warm(kind)
        assert Counter(started) == Counter(taken)
        children = [pool.take(module) for module in taken]
        assert len(started) == len(set(children)) == 2


def test_a_spare_is_kept_and_a_dead_one_is_not(pool: Pool, started: list[str]) -> None:
    with pool:
        pool.warm("value")
        pool.warm("program")
        assert started == [WORKER, WORKER, READER]
        pool.take(WORKER).kill()
        pool.warm("value")
        assert started == [WORKER, WORKER, READER, WORKER]
