"""The lessons and exercises of the course: plain data, read without JAX."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from jaxpar.course.command import command

Kind = Literal["program", "value", "specs", "schedule"]


class BadUseError(ValueError):
    """What was asked for cannot be done; the message says why, and what to do."""


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    Attributes:
        id: the name of its function, and of its file.
        lesson: number of its lesson.
        kind: `program` for a function that runs on many devices, `value` for plain numbers,
            `specs` for partition specs, by which the compiler splits a program, `schedule` for a
            pipeline's table.
        minutes: how long it takes someone who has read the lesson.
        title: what to write, in a few words.
        needs: exercises that help with this one.
        variant: which of its contract's variants a course has; 0 is the contract itself.
    """

    id: str
    lesson: str
    kind: Kind
    minutes: int
    title: str
    needs: tuple[str, ...] = ()
    variant: int = field(default=0, compare=False)

    @property
    def where(self) -> str:
        """The module of its contract, with `@variant` behind it unless it is as written."""
        module = f"jaxpar.contracts.{lesson(self.lesson).topic}.{self.id}"
        return module + (f"@{self.variant}" if self.variant else "")

    @property
    def points(self) -> int:
        """What a right answer earns."""
        return {"program": 10, "value": 5, "specs": 10, "schedule": 10}[self.kind]

    @property
    def file(self) -> str:
        """The learner's file, from the course folder."""
        return f"exercises/{lesson(self.lesson).name}/{self.id}.py"


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One lesson: what it prints in full, and what it asks the reader to write.

    Attributes:
        number: two digits, as the curriculum fixes them.
        topic: the name in its file name, and of the package of its contracts.
        title: the name in words.
        needs: numbers of the lessons to read first.
        minutes: how long it takes to read and run.
        prints: library functions whose source it shows; none of them is an exercise.
    """

    number: str
    topic: str
    title: str
    needs: tuple[str, ...] = ()
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
        number="01", topic="devices_and_meshes", title="Devices and meshes",
        minutes=25,
        prints=("make_mesh", "spec"),
    ),
    Lesson(
        number="02", topic="collectives", title="Collectives",
        needs=("01",), minutes=25,
        prints=(
            "broadcast", "reduce", "all_gather", "all_reduce", "reduce_scatter", "all_to_all",
            "permute",
        ),
    ),
    Lesson(
        number="03", topic="ring_and_tree", title="Rings and trees",
        needs=("02",), minutes=30,
        prints=(
            "ring_all_gather", "tree_reduce", "recursive_doubling_all_gather",
            "hierarchical_all_gather",
        ),
    ),
    Lesson(
        number="04", topic="costs", title="Costs",
        needs=("03",), minutes=35,
        prints=("layer_flops", "step_flops", "product_intensity", "attainable_flops"),
    ),
    Lesson(
        number="05", topic="data_parallel", title="Data parallelism",
        needs=("02",), minutes=35,
        prints=("single_master_gradients", "make_step", "train", "stale_server"),
    ),
    Lesson(
        number="07", topic="mixed_precision", title="Mixed precision",
        needs=("05",), minutes=30,
        prints=("cast", "master_weights"),
    ),
    Lesson(
        number="08", topic="activation_checkpointing", title="Activation checkpointing",
        needs=("04",), minutes=35,
        prints=("scan_layers", "checkpointed"),
    ),
    Lesson(
        number="09", topic="zero", title="ZeRO",
        needs=("05", "07"), minutes=35,
        prints=("init_shards", "own_shards", "gather_shards", "zero3_gradients"),
    ),
    Lesson(
        number="10", topic="fsdp", title="FSDP",
        needs=("08", "09"), minutes=35,
        prints=("fsdp_specs", "fsdp_loss"),
    ),
    Lesson(
        number="11", topic="tensor_parallel", title="Tensor parallelism",
        needs=("05",), minutes=35,
        prints=("enter", "column_linear", "row_linear", "parallel_mlp", "dropout"),
    ),
    Lesson(
        number="12", topic="vocabulary_and_sequence", title="Vocabulary and sequence",
        needs=("11",), minutes=35,
        prints=("vocab_parallel_logits", "gathered_linear", "matmul_ring"),
    ),
    Lesson(
        number="13", topic="tensor_2d_3d", title="Tensor parallelism in two and three dimensions",
        needs=("11",), minutes=35,
        prints=("cannon_matmul", "mlp_3d"),
    ),
    Lesson(
        number="15", topic="pipeline", title="Pipelines",
        needs=("08",), minutes=35,
        prints=("send_on", "naive_forward", "gpipe_loss"),
    ),
    Lesson(
        number="16", topic="pipeline_schedules", title="Pipeline schedules",
        needs=("15",), minutes=40,
        prints=(
            "breadth_first_schedule", "input_gradient", "weight_gradient", "pipeline_gradients",
        ),
    ),
    Lesson(
        number="19", topic="planner", title="The planner",
        needs=("04", "10", "12", "15"), minutes=40,
        prints=("collective_seconds", "microbatches_in_flight"),
    ),
)  # fmt: skip

# Id, lesson, kind, minutes, title, and the exercises that help with this one.
EXERCISES = (
    Exercise("device_coordinates", "01", "value", 10, "the position of a device in a mesh"),
    Exercise("local_shape", "01", "value", 15, "the shape of each device's part"),
    Exercise("add_rank", "01", "program", 10, "add this device's index"),
    Exercise("mean_over_devices", "02", "program", 10, "a mean by one all-reduce", ("add_rank",)),
    Exercise("scatter", "02", "program", 20, "to each device one part of the root's array",
             ("mean_over_devices",)),
    Exercise("gather", "02", "program", 20, "every device's array, on the root only", ("scatter",)),
    Exercise("reduce_max_location", "02", "program", 25, "the maximum, and who holds it",
             ("mean_over_devices",)),
    Exercise("all_to_all_by_permutes", "02", "program", 30, "a transpose across devices",
             ("scatter",)),
    Exercise("ring_reduce_scatter", "03", "program", 30, "sums that travel round a ring",
             ("all_to_all_by_permutes",)),
    Exercise("two_way_ring_all_gather", "03", "program", 30, "both ways round the ring at once",
             ("all_to_all_by_permutes",)),
    Exercise("tree_broadcast", "03", "program", 30, "from one to all in log2 n steps",
             ("scatter",)),
    Exercise("recursive_doubling_all_reduce", "03", "program", 25, "a sum in log2 n exchanges",
             ("tree_broadcast",)),
    Exercise("hierarchical_all_reduce", "03", "program", 30, "fast links first, slow links least",
             ("ring_reduce_scatter",)),
    Exercise("training_state_bytes", "04", "value", 10,
             "what a model takes before it sees a token"),
    Exercise("transformer_step_flops", "04", "value", 15, "all products of a step, counted"),
    Exercise("model_flops_utilization", "04", "value", 5, "the share of the peak that is of use",
             ("transformer_step_flops",)),
    Exercise("all_reduce_seconds", "04", "value", 10, "how long a ring takes on a link",
             ("ring_reduce_scatter",)),
    Exercise("hierarchical_all_reduce_seconds", "04", "value", 10, "on two kinds of links",
             ("all_reduce_seconds", "hierarchical_all_reduce")),
    Exercise("data_parallel_gradients", "05", "program", 20, "gradients of a split batch",
             ("mean_over_devices",)),
    Exercise("accumulate_gradients", "05", "program", 30, "many microbatches, one all-reduce",
             ("data_parallel_gradients",)),
    Exercise("bucketed_all_reduce", "05", "program", 30, "several leaves in one all-reduce",
             ("data_parallel_gradients",)),
    Exercise("parameter_server_step", "05", "program", 25, "one device updates for all",
             ("data_parallel_gradients", "gather")),
    Exercise("masked_mean", "05", "program", 15, "a mean that leaves padding out",
             ("mean_over_devices",)),
    Exercise("shard_indices", "05", "value", 20, "which examples each device takes"),
    Exercise("update_loss_scale", "07", "program", 15, "how the factor of the loss follows"),
    Exercise("mixed_precision_step", "07", "program", 30, "a step in float16 that skips overflows",
             ("update_loss_scale",)),
    Exercise("activation_bytes", "08", "value", 15, "what a GPT keeps for its gradient"),
    Exercise("remat_layers", "08", "program", 25, "keep the inputs of segments only",
             ("activation_bytes",)),
    Exercise("zero1_update", "09", "program", 30, "each device updates its rows",
             ("data_parallel_gradients",)),
    Exercise("global_norm_of_shards", "09", "program", 15, "one norm of what all share",
             ("mean_over_devices",)),
    Exercise("zero2_accumulate", "09", "program", 25, "gradients shared as they are added up",
             ("accumulate_gradients", "zero1_update")),
    Exercise("fsdp_apply", "10", "program", 25, "one layer whole at a time",
             ("zero1_update", "remat_layers")),
    Exercise("hybrid_gradients", "10", "program", 15, "rows in a node, copies between nodes",
             ("zero1_update",)),
    Exercise("fsdp_shardings", "10", "specs", 20, "what the compiler must know", ("local_shape",)),
    Exercise("parallel_swiglu", "11", "program", 20, "a gated MLP by columns and rows",
             ("mean_over_devices",)),
    Exercise("parallel_attention", "11", "program", 35, "each device has its heads",
             ("parallel_swiglu",)),
    Exercise("megatron_specs", "11", "specs", 15, "the same, made by the compiler",
             ("parallel_swiglu", "local_shape")),
    Exercise("vocab_parallel_embedding", "12", "program", 20, "rows that the devices share",
             ("parallel_swiglu",)),
    Exercise("vocab_parallel_cross_entropy", "12", "program", 30,
             "a loss of logits that no device has whole", ("vocab_parallel_embedding",)),
    Exercise("sequence_parallel_mlp", "12", "program", 20, "positions split between the blocks",
             ("parallel_swiglu",)),
    Exercise("ring_matmul", "12", "program", 30, "a product whose rows travel",
             ("ring_reduce_scatter", "sequence_parallel_mlp")),
    Exercise("summa_matmul", "13", "program", 30, "blocks of a product, on a square of devices",
             ("fsdp_apply",)),
    Exercise("matmul_2_5d", "13", "program", 15, "several squares, and one matrix in all",
             ("summa_matmul",)),
    Exercise("matmul_3d", "13", "program", 20, "one product on each device of a cube",
             ("summa_matmul",)),
    Exercise("gpipe_schedule", "15", "schedule", 15, "a table of who does what, in which order"),
    Exercise("bubble_fraction", "15", "value", 10, "the idle share of a pipeline",
             ("gpipe_schedule",)),
    Exercise("pipeline_forward", "15", "program", 30,
             "microbatches through all stages, one each tick", ("gpipe_schedule",)),
    Exercise("one_f_one_b_schedule", "16", "schedule", 20, "a backward after each forward",
             ("gpipe_schedule",)),
    Exercise("interleaved_schedule", "16", "schedule", 35, "several chunks on each device",
             ("one_f_one_b_schedule",)),
    Exercise("zero_bubble_h1_schedule", "16", "schedule", 25, "weight gradients fill the bubble",
             ("one_f_one_b_schedule",)),
    Exercise("stash_size", "16", "value", 15, "what a schedule keeps at most", ("gpipe_schedule",)),
    Exercise("kv_cache_bytes", "19", "value", 5, "what tokens leave behind"),
    Exercise("max_batch_that_fits", "19", "value", 5, "how many find room beside the weights",
             ("kv_cache_bytes",)),
    Exercise("young_daly_interval", "19", "value", 10, "how often to save, if devices fail"),
    Exercise("best_plan", "19", "value", 10, "the fastest that fits"),
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
