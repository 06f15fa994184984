"""The table of lessons and exercises agrees with the contracts, the library and itself."""

import subprocess
import sys

import pytest

from jaxpar import backward, collectives, mesh
from jaxpar.collectives import shards
from jaxpar.cost import flops, memory, network, roofline
from jaxpar.course import catalog
from jaxpar.course.catalog import EXERCISES, LESSONS, BadUseError, exercise, lesson, used_by
from jaxpar.parallel import (
    fsdp,
    gpipe,
    pipeline,
    precision,
    remat,
    ring_matmul,
    sequence,
    server,
    tensor,
    tensor_nd,
    vocabulary,
    zero,
)
from jaxpar.schedules import generators, ticks
from jaxpar.train import loop, step

each_exercise = pytest.mark.parametrize("row", EXERCISES, ids=lambda row: row.id)


def test_every_exercise_belongs_to_a_lesson_and_they_stand_in_its_order() -> None:
    numbers = [row.number for row in LESSONS]
    assert numbers == sorted(set(numbers))
    assert [row.lesson for row in EXERCISES] == [row.number for row in LESSONS for _ in row.asks]
    assert all(row.asks for row in LESSONS)
    assert len({row.id for row in EXERCISES}) == len(EXERCISES)


@each_exercise
def test_an_exercise_needs_what_comes_before_it(row: catalog.Exercise) -> None:
    ids = [other.id for other in EXERCISES]
    assert all(ids.index(needed) < ids.index(row.id) for needed in row.needs)


@pytest.mark.parametrize("row", LESSONS, ids=lambda row: row.number)
def test_a_lesson_prints_library_functions_and_asks_for_others(row: catalog.Lesson) -> None:
    library = vars(collectives) | vars(mesh) | vars(server) | vars(step) | vars(loop)
    library |= vars(precision) | vars(remat) | vars(shards) | vars(zero) | vars(fsdp)
    library |= vars(tensor) | vars(vocabulary) | vars(sequence) | vars(ring_matmul)
    library |= vars(tensor_nd) | vars(gpipe) | vars(pipeline) | vars(backward) | vars(ticks)
    library |= vars(generators) | vars(flops) | vars(roofline)
    library |= vars(network) | vars(memory)
    assert all(callable(library[name]) for name in row.prints)
    assert not set(row.prints) & {asked.id for asked in EXERCISES}
    assert all(needed < row.number for needed in row.needs)


def test_a_lesson_is_found_by_number_and_by_name() -> None:
    assert lesson("2") == lesson("02") == lesson("collectives") == lesson("02_collectives")
    with pytest.raises(BadUseError, match=r"no lesson '6'; use one of 01, 02, 03"):
        lesson("6")


def test_an_unknown_exercise_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadUseError, match="'tree_brodcast'; did you mean tree_broadcast"):
        exercise("tree_brodcast")
    for unknown in ("x", "", "r"):  # two names begin with the last
        with pytest.raises(BadUseError, match="jaxpar list"):
            exercise(unknown)


def test_the_beginning_of_a_name_is_enough_and_a_path_is_understood() -> None:
    assert exercise("tree").id == "tree_broadcast"
    with pytest.raises(BadUseError, match=r"gather\.py'; did you mean gather"):
        exercise("exercises/02_collectives/gather.py")


def test_what_builds_on_an_exercise() -> None:
    assert [row.id for row in used_by("tree_broadcast")] == ["recursive_doubling_all_reduce"]


def test_it_is_read_without_jax() -> None:
    program = "import sys, jaxpar.course.catalog; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
