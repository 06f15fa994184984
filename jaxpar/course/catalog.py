"""The lessons and exercises of the course: plain data, read without JAX."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any

from jaxpar.course.command import command
from jaxpar.course.exercises import ROWS, Kind


class BadUseError(ValueError):
    """What was asked for cannot be done; the message says why, and what to do."""


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Attributes:
        id: the name of its function, and of its file.
        lesson: number of its lesson.
        title: what to write, in a few words.
        kind: `program` for a function that runs on many devices, `value` for plain numbers,
            `specs` for partition specs, by which the compiler splits a program, `schedule` for a
            pipeline's table.
        minutes: how long it takes someone who has read the lesson.
        needs: exercises that help with this one.
        contracts: the module that holds its contract.
        variant: which of its contract's variants a course has; 0 is the contract itself.
    """

    id: str
    lesson: str
    title: str
    kind: Kind
    minutes: int
    needs: tuple[str, ...]
    contracts: str
    variant: int = field(default=0, compare=False)

    @property
    def where(self) -> str:
        """Its contract, as `module:id` or `module:id@variant`."""
        return f"{self.contracts}:{self.id}" + (f"@{self.variant}" if self.variant else "")

    @property
    def points(self) -> int:
        """What a right answer earns."""
        return {"program": 10, "value": 5, "specs": 10, "schedule": 10}[self.kind]

    @property
    def file(self) -> str:
        """The learner's file, from the course folder."""
        return f"exercises/{lesson(self.lesson).name}/{self.id}.py"


@dataclass(frozen=True)
class Lesson:
    """One lesson: what it prints in full, and what it asks the reader to write.

    Attributes:
        number: two digits, as the curriculum fixes them.
        topic: the name in its file name.
        title: the name in words.
        needs: numbers of the lessons to read first.
        minutes: how long it takes to read and run.
        prints: library functions whose source it shows; none of them is an exercise.
    """

    number: str
    topic: str
    title: str
    needs: tuple[str, ...]
    minutes: int
    prints: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its file and of its folder of exercises."""
        return f"{self.number}_{self.topic}"

    @property
    def file(self) -> str:
        """The lesson's file, from the course folder."""
        return f"lessons/{self.name}.py"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"file": self.file, "asks": [row.id for row in self.asks]}

    @property
    def asks(self) -> tuple[Exercise, ...]:
        """The exercises that belong to it, in order."""
        return tuple(exercise for exercise in EXERCISES if exercise.lesson == self.number)


LESSONS = (
    Lesson(
        "01", "devices_and_meshes", "Devices and meshes", (), 25,
        prints=("make_mesh", "spec"),
    ),
    Lesson(
        "02", "collectives", "Collectives", ("01",), 25,
        prints=(
            "broadcast", "reduce", "all_gather", "all_reduce", "reduce_scatter", "all_to_all",
            "permute",
        ),
    ),
    Lesson(
        "03", "ring_and_tree", "Rings and trees", ("02",), 30,
        prints=(
            "ring_all_gather", "tree_reduce", "recursive_doubling_all_gather",
            "hierarchical_all_gather",
        ),
    ),
    Lesson(
        "04", "costs", "Costs", ("03",), 35,
        prints=("layer_flops", "step_flops", "product_intensity", "attainable_flops"),
    ),
    Lesson(
        "05", "data_parallel", "Data parallelism", ("02",), 35,
        prints=("single_master_gradients", "make_step", "train", "stale_server"),
    ),
    Lesson(
        "07", "mixed_precision", "Mixed precision", ("05",), 30,
        prints=("cast", "master_weights"),
    ),
    Lesson(
        "08", "activation_checkpointing", "Activation checkpointing", ("04",), 35,
        prints=("scan_layers", "checkpointed"),
    ),
    Lesson(
        "09", "zero", "ZeRO", ("05", "07"), 35,
        prints=("init_shards", "own_shards", "gather_shards", "zero3_gradients"),
    ),
    Lesson(
        "10", "fsdp", "FSDP", ("08", "09"), 35,
        prints=("fsdp_specs", "fsdp_loss"),
    ),
    Lesson(
        "11", "tensor_parallel", "Tensor parallelism", ("05",), 35,
        prints=("enter", "column_linear", "row_linear", "parallel_mlp", "dropout"),
    ),
    Lesson(
        "12", "vocabulary_and_sequence", "Vocabulary and sequence", ("11",), 35,
        prints=("vocab_parallel_logits", "gathered_linear", "matmul_ring"),
    ),
    Lesson(
        "13", "tensor_2d_3d", "Tensor parallelism in two and three dimensions", ("11",), 35,
        prints=("cannon_matmul", "mlp_3d"),
    ),
    Lesson(
        "15", "pipeline", "Pipelines", ("08",), 35,
        prints=("send_on", "naive_forward", "gpipe_loss"),
    ),
    Lesson(
        "16", "pipeline_schedules", "Pipeline schedules", ("15",), 40,
        prints=(
            "breadth_first_schedule", "input_gradient", "weight_gradient", "pipeline_gradients",
        ),
    ),
    Lesson(
        "19", "planner", "The planner", ("04", "10", "12", "15"), 40,
        prints=("collective_seconds", "microbatches_in_flight"),
    ),
)  # fmt: skip

EXERCISES = tuple(Exercise(*row) for row in ROWS)


def lesson(number: str) -> Lesson:
    """The lesson with this number: "2", "02" and its full name all do.

    Raises:
        BadUseError: there is none.
    """
    wanted = number.zfill(2) if number.isdigit() else number
    for row in LESSONS:
        if wanted in (row.number, row.topic, row.name):
            return row
    numbers = ", ".join(row.number for row in LESSONS)
    raise BadUseError(f"lesson: there is no lesson {number!r}; use one of {numbers}")


def exercise(id: str) -> Exercise:
    """The exercise with this id; as much of it will do as no other begins with.

    Raises:
        BadUseError: there is none; the message names the nearest.
    """
    by_id = {row.id: row for row in EXERCISES}
    begun = [row for row in EXERCISES if row.id.startswith(id)]
    if id in by_id or len(begun) == 1:
        return by_id.get(id, begun[0])
    near = difflib.get_close_matches(PurePath(id).stem, by_id, n=1)
    advice = f"did you mean {near[0]}?" if near else f"`{command()} list` shows them all"
    raise BadUseError(f"exercise: there is no exercise {id!r}; {advice}")


def used_by(id: str) -> tuple[Exercise, ...]:
    """The exercises that build on this one."""
    return tuple(row for row in EXERCISES if id in row.needs)
