"""The lessons and exercises of the course: plain data, read without JAX."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Literal

from jaxpar.course.command import command


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
            `specs` for partition specs, by which the compiler splits a program.
        minutes: how long it takes someone who has read the lesson.
        needs: exercises that help with this one.
        contracts: the module that holds its contract.
    """

    id: str
    lesson: str
    title: str
    kind: Literal["program", "value", "specs"]
    minutes: int
    needs: tuple[str, ...]
    contracts: str

    @property
    def where(self) -> str:
        """Its contract, as `module:id`."""
        return f"{self.contracts}:{self.id}"

    @property
    def points(self) -> int:
        """What a right answer earns."""
        return {"program": 10, "value": 5, "specs": 10}[self.kind]

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
        "05", "data_parallel", "Data parallelism", ("02",), 35,
        prints=("single_master_gradients", "make_step", "train", "stale_server"),
    ),
    Lesson(
        "07", "mixed_precision", "Mixed precision", ("05",), 30,
        prints=("cast", "master_weights"),
    ),
    Lesson(
        "08", "activation_checkpointing", "Activation checkpointing", ("05",), 35,
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
)  # fmt: skip

_DEVICES = "jaxpar.contracts.devices"
_COLLECTIVES = "jaxpar.contracts.collectives"
_RINGS = "jaxpar.contracts.ring_and_tree"
_DATA = "jaxpar.contracts.data_parallel"
_BUCKETS = "jaxpar.contracts.buckets"
_SERVER = "jaxpar.contracts.parameter_server"
_SAMPLER = "jaxpar.contracts.sampler"
_PRECISION = "jaxpar.contracts.precision"
_ZERO = "jaxpar.contracts.zero"
_FSDP = "jaxpar.contracts.fsdp"
_REMAT = "jaxpar.contracts.remat"

EXERCISES = (
    Exercise(
        "device_coordinates", "01", "the position of a device in a mesh",
        "value", 10, (), _DEVICES,
    ),
    Exercise(
        "local_shape", "01", "the shape of each device's part",
        "value", 15, (), _DEVICES,
    ),
    Exercise(
        "add_rank", "01", "add this device's index",
        "program", 10, (), _DEVICES,
    ),
    Exercise(
        "mean_over_devices", "02", "a mean by one all-reduce",
        "program", 10, ("add_rank",), _COLLECTIVES,
    ),
    Exercise(
        "scatter", "02", "to each device one part of the root's array",
        "program", 20, ("mean_over_devices",), _COLLECTIVES,
    ),
    Exercise(
        "gather", "02", "every device's array, on the root only",
        "program", 20, ("scatter",), _COLLECTIVES,
    ),
    Exercise(
        "reduce_max_location", "02", "the maximum, and who holds it",
        "program", 25, ("mean_over_devices",), _COLLECTIVES,
    ),
    Exercise(
        "all_to_all_by_permutes", "02", "a transpose across devices",
        "program", 30, ("scatter",), _COLLECTIVES,
    ),
    Exercise(
        "ring_reduce_scatter", "03", "sums that travel round a ring",
        "program", 30, ("all_to_all_by_permutes",), _RINGS,
    ),
    Exercise(
        "two_way_ring_all_gather", "03", "both ways round the ring at once",
        "program", 30, ("all_to_all_by_permutes",), _RINGS,
    ),
    Exercise(
        "tree_broadcast", "03", "from one to all in log2 n steps",
        "program", 30, ("scatter",), _RINGS,
    ),
    Exercise(
        "recursive_doubling_all_reduce", "03", "a sum in log2 n exchanges",
        "program", 25, ("tree_broadcast",), _RINGS,
    ),
    Exercise(
        "hierarchical_all_reduce", "03", "fast links first, slow links least",
        "program", 30, ("ring_reduce_scatter",), _RINGS,
    ),
    Exercise(
        "data_parallel_gradients", "05", "gradients of a split batch",
        "program", 20, ("mean_over_devices",), _DATA,
    ),
    Exercise(
        "accumulate_gradients", "05", "many microbatches, one all-reduce",
        "program", 30, ("data_parallel_gradients",), _DATA,
    ),
    Exercise(
        "bucketed_all_reduce", "05", "several leaves in one all-reduce",
        "program", 30, ("data_parallel_gradients",), _BUCKETS,
    ),
    Exercise(
        "parameter_server_step", "05", "one device updates for all",
        "program", 25, ("data_parallel_gradients", "gather"), _SERVER,
    ),
    Exercise(
        "masked_mean", "05", "a mean that leaves padding out",
        "program", 15, ("mean_over_devices",), _DATA,
    ),
    Exercise(
        "shard_indices", "05", "which examples each device takes",
        "value", 20, (), _SAMPLER,
    ),
    Exercise(
        "update_loss_scale", "07", "how the factor of the loss follows",
        "program", 15, (), _PRECISION,
    ),
    Exercise(
        "mixed_precision_step", "07", "a step in float16 that skips overflows",
        "program", 30, ("update_loss_scale",), _PRECISION,
    ),
    Exercise(
        "activation_bytes", "08", "what a GPT keeps for its gradient",
        "value", 15, (), _REMAT,
    ),
    Exercise(
        "remat_layers", "08", "keep the inputs of segments only",
        "program", 25, ("activation_bytes",), _REMAT,
    ),
    Exercise(
        "zero1_update", "09", "each device updates its rows",
        "program", 30, ("data_parallel_gradients",), _ZERO,
    ),
    Exercise(
        "global_norm_of_shards", "09", "one norm of what all share",
        "program", 15, ("mean_over_devices",), _ZERO,
    ),
    Exercise(
        "zero2_accumulate", "09", "gradients shared as they are added up",
        "program", 25, ("accumulate_gradients", "zero1_update"), _ZERO,
    ),
    Exercise(
        "fsdp_apply", "10", "one layer whole at a time",
        "program", 25, ("zero1_update", "remat_layers"), _FSDP,
    ),
    Exercise(
        "hybrid_gradients", "10", "rows in a node, copies between nodes",
        "program", 15, ("zero1_update",), _FSDP,
    ),
    Exercise(
        "fsdp_shardings", "10", "what the compiler must know",
        "specs", 20, ("local_shape",), "jaxpar.contracts.shardings",
    ),
)  # fmt: skip


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
