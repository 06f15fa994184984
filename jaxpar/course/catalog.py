"""The lessons and exercises of the course: plain data, read without JAX.

Every list of lessons or exercises is derived from these two tables, in the course's order.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from jaxpar.course.command import command

Kind = Literal["program", "value", "specs", "schedule"]


class BadUseError(ValueError):
    """What was asked for cannot be done; the message says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise.

    Attributes:
        id: the name of its function, and of its file.
        lesson: the number of its lesson.
        title: what to write, in a few words.
        kind: `program` for a function that runs on many devices, `value` for plain numbers,
            `specs` for partition specs, by which the compiler splits a program, `schedule` for a
            pipeline's table.
        minutes: how long it takes someone who has read the lesson.
        needs: exercises that help with this one.
        variant: the number of the contract's variant that a course has; 0 is the contract itself.
    """

    id: str
    lesson: str
    title: str
    kind: Kind
    minutes: int
    needs: tuple[str, ...] = ()
    variant: int = field(default=0, compare=False)

    @property
    def where(self) -> str:
        """The module of its contract, followed by `@variant` if it is a variant."""
        module = f"jaxpar.contracts.{lesson(self.lesson).topic}.{self.id}"
        return module + (f"@{self.variant}" if self.variant else "")

    @property
    def points(self) -> int:
        """The points that a right answer earns."""
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
        minutes=30,
        prints=("make_mesh", "spec"),
    ),
    Lesson(
        number="02", topic="collectives", title="Collectives",
        needs=("01",), minutes=40,
        prints=(
            "broadcast", "reduce", "all_gather", "all_reduce", "reduce_scatter", "all_to_all",
            "permute",
        ),
    ),
    Lesson(
        number="03", topic="ring_and_tree", title="Rings and trees",
        needs=("02",), minutes=35,
        prints=(
            "ring_all_gather", "tree_reduce", "recursive_doubling_all_gather",
            "hierarchical_all_gather",
        ),
    ),
    Lesson(
        number="04", topic="costs", title="Costs",
        needs=("03",), minutes=30,
        prints=("layer_flops", "step_flops", "product_intensity", "attainable_flops"),
    ),
    Lesson(
        number="05", topic="data_parallel", title="Data parallelism",
        needs=("02",), minutes=35,
        prints=("single_master_gradients", "train", "stale_server"),
    ),
    Lesson(
        number="06", topic="low_communication", title="Low communication",
        needs=("05",), minutes=42,
        prints=("sign_all_reduce", "powersgd_all_reduce", "local_sgd_round"),
    ),
    Lesson(
        number="07", topic="mixed_precision", title="Mixed precision",
        needs=("05",), minutes=25,
        prints=("cast", "master_weights"),
    ),
    Lesson(
        number="08", topic="activation_checkpointing", title="Activation checkpointing",
        needs=("04",), minutes=35,
        prints=("scan_layers", "checkpointed"),
    ),
    Lesson(
        number="09", topic="zero", title="ZeRO",
        needs=("05", "07"), minutes=30,
        prints=("own", "fetch", "init_shards", "zero3_gradients", "clip_shards"),
    ),
    Lesson(
        number="10", topic="fsdp", title="FSDP",
        needs=("08", "09"), minutes=40,
        prints=("fsdp_loss", "gathered_layer", "tokens_to_hide"),
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
        number="14", topic="context_parallel", title="Long sequences",
        needs=("11",), minutes=45,
        prints=("attend", "merge", "chunked_attention", "gather_attention"),
    ),
    Lesson(
        number="15", topic="pipeline", title="Pipelines",
        needs=("08",), minutes=30,
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
        number="17", topic="mixture_of_experts", title="Mixture of experts",
        needs=("11",), minutes=38,
        prints=("expert_choice", "router_z_loss"),
    ),
    Lesson(
        number="18", topic="hybrid", title="Hybrid parallelism",
        needs=("10", "12", "15"), minutes=41,
        prints=("leaf_layouts", "fetch", "scatter_gradients", "update_owned", "over_devices"),
    ),
    Lesson(
        number="19", topic="planner", title="The planner",
        needs=("04", "10", "12", "15"), minutes=35,
        prints=("collective_seconds", "microbatches_in_flight"),
    ),
    Lesson(
        number="20", topic="training_for_real", title="Training for real",
        needs=("10",), minutes=39,
        prints=(
            "fingerprint", "block_range", "epoch_order", "write_manifest", "cosine_schedule",
        ),
    ),
    Lesson(
        number="21", topic="inference", title="Inference",
        needs=("11",), minutes=40,
        prints=("slot_attention", "write_tokens"),
    ),
    Lesson(
        number="22", topic="smaller_models", title="Smaller models",
        needs=("07",), minutes=45,
        prints=("quantize_blocks", "nf4_quantize", "gptq"),
    ),
    Lesson(
        number="23", topic="adapters", title="Adapters",
        needs=("09",), minutes=40,
        prints=("lora_linear", "merge"),
    ),
)  # fmt: skip

EXERCISES = (
    Exercise(
        id="device_coordinates", lesson="01", kind="value", minutes=10,
        title="the position of a device in a mesh",
    ),
    Exercise(
        id="local_shape", lesson="01", kind="value", minutes=15,
        title="the shape of each device's shard",
    ),
    Exercise(
        id="add_rank", lesson="01", kind="program", minutes=10,
        title="add this device's index",
    ),
    Exercise(
        id="mean_over_devices", lesson="02", kind="program", minutes=10,
        title="a mean by one all-reduce", needs=("add_rank",),
    ),
    Exercise(
        id="scatter", lesson="02", kind="program", minutes=20,
        title="one part of the root's array for each device", needs=("mean_over_devices",),
    ),
    Exercise(
        id="gather", lesson="02", kind="program", minutes=20,
        title="every device's array, on the root only", needs=("scatter",),
    ),
    Exercise(
        id="reduce_max_location", lesson="02", kind="program", minutes=25,
        title="the maximum, and who holds it", needs=("mean_over_devices",),
    ),
    Exercise(
        id="all_to_all_by_permutes", lesson="02", kind="program", minutes=30,
        title="a transpose across devices", needs=("scatter",),
    ),
    Exercise(
        id="swap_layout", lesson="02", kind="program", minutes=60,
        title="an open challenge: the fewest bytes",
        needs=("all_to_all_by_permutes",),
    ),
    Exercise(
        id="ring_reduce_scatter", lesson="03", kind="program", minutes=30,
        title="sums that travel round a ring", needs=("all_to_all_by_permutes",),
    ),
    Exercise(
        id="two_way_ring_all_gather", lesson="03", kind="program", minutes=30,
        title="both ways round the ring at once", needs=("all_to_all_by_permutes",),
    ),
    Exercise(
        id="tree_broadcast", lesson="03", kind="program", minutes=30,
        title="from one to all in log2 n steps", needs=("scatter",),
    ),
    Exercise(
        id="recursive_doubling_all_reduce", lesson="03", kind="program", minutes=25,
        title="a sum in log2 n exchanges", needs=("tree_broadcast",),
    ),
    Exercise(
        id="hierarchical_all_reduce", lesson="03", kind="program", minutes=30,
        title="fast links first, slow links least", needs=("ring_reduce_scatter",),
    ),
    Exercise(
        id="training_state_bytes", lesson="04", kind="value", minutes=10,
        title="what a model takes before it sees a token",
    ),
    Exercise(
        id="transformer_step_flops", lesson="04", kind="value", minutes=15,
        title="all products of a step, counted",
    ),
    Exercise(
        id="model_flops_utilization", lesson="04", kind="value", minutes=5,
        title="the fraction of the peak that training reaches", needs=("transformer_step_flops",),
    ),
    Exercise(
        id="all_reduce_seconds", lesson="04", kind="value", minutes=10,
        title="how long a ring takes on a link", needs=("ring_reduce_scatter",),
    ),
    Exercise(
        id="hierarchical_all_reduce_seconds", lesson="04", kind="value", minutes=10,
        title="an all-reduce over two kinds of links",
        needs=("all_reduce_seconds", "hierarchical_all_reduce"),
    ),
    Exercise(
        id="data_parallel_gradients", lesson="05", kind="program", minutes=20,
        title="gradients of a split batch", needs=("mean_over_devices",),
    ),
    Exercise(
        id="accumulate_gradients", lesson="05", kind="program", minutes=30,
        title="many microbatches, one all-reduce", needs=("data_parallel_gradients",),
    ),
    Exercise(
        id="bucketed_all_reduce", lesson="05", kind="program", minutes=30,
        title="several leaves in one all-reduce", needs=("data_parallel_gradients",),
    ),
    Exercise(
        id="parameter_server_step", lesson="05", kind="program", minutes=25,
        title="one device updates for all", needs=("data_parallel_gradients", "gather"),
    ),
    Exercise(
        id="masked_mean", lesson="05", kind="program", minutes=15,
        title="a mean that leaves padding out", needs=("mean_over_devices",),
    ),
    Exercise(
        id="shard_indices", lesson="05", kind="value", minutes=20,
        title="which examples each device takes",
    ),
    Exercise(
        id="compressed_bytes", lesson="06", kind="value", minutes=15,
        title="what each scheme sends of a matrix", needs=("all_reduce_seconds",),
    ),
    Exercise(
        id="quantized_all_reduce", lesson="06", kind="program", minutes=45,
        title="a mean in 8 or 4 bits, which loses nothing for good",
        needs=("all_to_all_by_permutes", "mean_over_devices"),
    ),
    Exercise(
        id="top_k_all_reduce", lesson="06", kind="program", minutes=25,
        title="the largest numbers of each device", needs=("mean_over_devices",),
    ),
    Exercise(
        id="diloco_round", lesson="06", kind="program", minutes=40,
        title="many local steps, one all-reduce", needs=("accumulate_gradients",),
    ),
    Exercise(
        id="streaming_round", lesson="06", kind="program", minutes=40,
        title="a fragment of the model at a time", needs=("diloco_round",),
    ),
    Exercise(
        id="one_peer_average", lesson="06", kind="program", minutes=20,
        title="an average with another device in each step",
        needs=("recursive_doubling_all_reduce",),
    ),
    Exercise(
        id="mean_of_arrived", lesson="06", kind="program", minutes=15,
        title="a mean that waits for nobody", needs=("masked_mean",),
    ),
    Exercise(
        id="update_loss_scale", lesson="07", kind="program", minutes=15,
        title="how the loss scale grows and shrinks",
    ),
    Exercise(
        id="mixed_precision_step", lesson="07", kind="program", minutes=30,
        title="a step in float16 that skips overflows", needs=("update_loss_scale",),
    ),
    Exercise(
        id="activation_bytes", lesson="08", kind="value", minutes=15,
        title="what a GPT keeps for its gradient",
    ),
    Exercise(
        id="remat_layers", lesson="08", kind="program", minutes=25,
        title="keep only the inputs of segments", needs=("activation_bytes",),
    ),
    Exercise(
        id="frugal_layers", lesson="08", kind="program", minutes=60,
        title="an open challenge: the least memory", needs=("remat_layers",),
    ),
    Exercise(
        id="zero1_update", lesson="09", kind="program", minutes=30,
        title="each device updates its rows", needs=("data_parallel_gradients",),
    ),
    Exercise(
        id="global_norm_of_shards", lesson="09", kind="program", minutes=15,
        title="one norm over leaves that are sharded", needs=("mean_over_devices",),
    ),
    Exercise(
        id="zero2_accumulate", lesson="09", kind="program", minutes=25,
        title="gradients scattered as they accumulate",
        needs=("accumulate_gradients", "zero1_update"),
    ),
    Exercise(
        id="fsdp_apply", lesson="10", kind="program", minutes=30,
        title="one layer gathered at a time", needs=("zero1_update", "remat_layers"),
    ),
    Exercise(
        id="hybrid_gradients", lesson="10", kind="program", minutes=15,
        title="shards inside a node, replicas between nodes", needs=("zero1_update",),
    ),
    Exercise(
        id="fsdp_shardings", lesson="10", kind="specs", minutes=20,
        title="specs from which the compiler makes FSDP", needs=("local_shape",),
    ),
    Exercise(
        id="parallel_swiglu", lesson="11", kind="program", minutes=20,
        title="a gated MLP by columns and rows", needs=("mean_over_devices",),
    ),
    Exercise(
        id="parallel_attention", lesson="11", kind="program", minutes=35,
        title="each device computes its own heads", needs=("parallel_swiglu",),
    ),
    Exercise(
        id="megatron_specs", lesson="11", kind="specs", minutes=15,
        title="specs from which the compiler splits layers",
        needs=("parallel_swiglu", "local_shape"),
    ),
    Exercise(
        id="vocab_parallel_embedding", lesson="12", kind="program", minutes=20,
        title="a table whose rows are split", needs=("parallel_swiglu",),
    ),
    Exercise(
        id="vocab_parallel_cross_entropy", lesson="12", kind="program", minutes=30,
        title="a loss of logits that no device has whole", needs=("vocab_parallel_embedding",),
    ),
    Exercise(
        id="sequence_parallel_mlp", lesson="12", kind="program", minutes=20,
        title="positions split between the blocks", needs=("parallel_swiglu",),
    ),
    Exercise(
        id="ring_matmul", lesson="12", kind="program", minutes=30,
        title="a product whose rows travel", needs=("ring_reduce_scatter", "sequence_parallel_mlp"),
    ),
    Exercise(
        id="summa_matmul", lesson="13", kind="program", minutes=30,
        title="blocks of a product, on a square of devices", needs=("fsdp_apply",),
    ),
    Exercise(
        id="matmul_2_5d", lesson="13", kind="program", minutes=15,
        title="several squares, and one matrix in all", needs=("summa_matmul",),
    ),
    Exercise(
        id="matmul_3d", lesson="13", kind="program", minutes=20,
        title="one product on each device of a cube", needs=("summa_matmul",),
    ),
    Exercise(
        id="attention_over_shards", lesson="14", kind="program", minutes=20,
        title="keys that are split, and queries that are not", needs=("mean_over_devices",),
    ),
    Exercise(
        id="flash_attention", lesson="14", kind="program", minutes=40,
        title="one tile of scores after another, and back", needs=("remat_layers",),
    ),
    Exercise(
        id="ring_attention", lesson="14", kind="program", minutes=40,
        title="keys and values go round a ring",
        needs=("ring_matmul", "attention_over_shards"),
    ),
    Exercise(
        id="zigzag_ring_attention", lesson="14", kind="program", minutes=35,
        title="a ring in which all devices have equal work", needs=("ring_attention",),
    ),
    Exercise(
        id="ulysses_attention", lesson="14", kind="program", minutes=30,
        title="positions exchanged for heads", needs=("parallel_attention",),
    ),
    Exercise(
        id="gpipe_schedule", lesson="15", kind="schedule", minutes=15,
        title="a table of who does what, in which order",
    ),
    Exercise(
        id="bubble_fraction", lesson="15", kind="value", minutes=10,
        title="the idle fraction of a pipeline", needs=("gpipe_schedule",),
    ),
    Exercise(
        id="pipeline_forward", lesson="15", kind="program", minutes=30,
        title="microbatches through all stages, one each tick", needs=("gpipe_schedule",),
    ),
    Exercise(
        id="one_f_one_b_schedule", lesson="16", kind="schedule", minutes=20,
        title="a backward after each forward", needs=("gpipe_schedule",),
    ),
    Exercise(
        id="interleaved_schedule", lesson="16", kind="schedule", minutes=35,
        title="several chunks on each device", needs=("one_f_one_b_schedule",),
    ),
    Exercise(
        id="zero_bubble_h1_schedule", lesson="16", kind="schedule", minutes=25,
        title="weight gradients fill the bubble", needs=("one_f_one_b_schedule",),
    ),
    Exercise(
        id="stash_size", lesson="16", kind="value", minutes=15,
        title="how many inputs a schedule keeps at most", needs=("gpipe_schedule",),
    ),
    Exercise(
        id="limited_schedule", lesson="16", kind="schedule", minutes=60,
        title="an open challenge: the shortest schedule",
        needs=("zero_bubble_h1_schedule", "stash_size"),
    ),
    Exercise(
        id="timed_schedule", lesson="16", kind="schedule", minutes=60,
        title="an open challenge: the shortest for given times", needs=("limited_schedule",),
    ),
    Exercise(
        id="route", lesson="17", kind="program", minutes=20,
        title="the experts of each token, and their weights",
    ),
    Exercise(
        id="moe_token_choice", lesson="17", kind="program", minutes=40,
        title="tokens travel to experts that have room",
        needs=("route", "all_to_all_by_permutes"),
    ),
    Exercise(
        id="grouped_matmul", lesson="17", kind="program", minutes=35,
        title="each group of rows times its own matrix",
    ),
    Exercise(
        id="moe_dropless", lesson="17", kind="program", minutes=35,
        title="all tokens come, and none is dropped", needs=("moe_token_choice", "grouped_matmul"),
    ),
    Exercise(
        id="load_balance_loss", lesson="17", kind="program", minutes=15,
        title="a loss of the tokens of all devices", needs=("mean_over_devices",),
    ),
    Exercise(
        id="update_expert_bias", lesson="17", kind="program", minutes=15,
        title="balance without a loss", needs=("load_balance_loss",),
    ),
    Exercise(
        id="dispatch_bytes", lesson="17", kind="value", minutes=15,
        title="an all-to-all or a gather: which sends less", needs=("moe_token_choice",),
    ),
    Exercise(
        id="sharded_dim", lesson="18", kind="value", minutes=20,
        title="where a leaf is sharded that other axes split",
    ),
    Exercise(
        id="sum_gradients", lesson="18", kind="program", minutes=20,
        title="sum each gradient over what its type says", needs=("zero1_update",),
    ),
    Exercise(
        id="clip_gradients", lesson="18", kind="program", minutes=25,
        title="clip by one norm of leaves on different axes",
        needs=("global_norm_of_shards", "sum_gradients"),
    ),
    Exercise(
        id="masked_gradients", lesson="18", kind="program", minutes=30,
        title="the mean over all real tokens, not a mean of means",
        needs=("accumulate_gradients", "masked_mean"),
    ),
    Exercise(
        id="tied_table_gradient", lesson="18", kind="program", minutes=25,
        title="a table that the first and the last stage use", needs=("sum_gradients",),
    ),
    Exercise(
        id="tokens_that_hide_fsdp", lesson="19", kind="value", minutes=15,
        title="the tokens per device below which FSDP waits",
        needs=("hierarchical_all_reduce_seconds",),
    ),
    Exercise(
        id="layout_step_seconds", lesson="19", kind="value", minutes=15,
        title="the time of a step, from a few figures", needs=("bubble_fraction",),
    ),
    Exercise(
        id="faster_plan", lesson="19", kind="value", minutes=30,
        title="a bad plan, 1.3 times faster by one change",
        needs=("tokens_that_hide_fsdp", "layout_step_seconds"),
    ),
    Exercise(
        id="young_daly_interval", lesson="19", kind="value", minutes=10,
        title="how often to save, if devices fail",
    ),
    Exercise(
        id="kv_cache_bytes", lesson="19", kind="value", minutes=5,
        title="the bytes of a key-value cache",
    ),
    Exercise(
        id="wsd_schedule", lesson="20", kind="value", minutes=10,
        title="a learning rate that rises, stays and falls",
    ),
    Exercise(
        id="resume_indices", lesson="20", kind="value", minutes=20,
        title="the examples that come next, on any number of devices", needs=("shard_indices",),
    ),
    Exercise(
        id="newest_whole", lesson="20", kind="value", minutes=15,
        title="the newest checkpoint that is not damaged",
    ),
    Exercise(
        id="chunks_to_read", lesson="20", kind="value", minutes=30,
        title="what a device reads of an array saved in other parts", needs=("local_shape",),
    ),
    Exercise(
        id="reshard_rows_to_columns", lesson="20", kind="program", minutes=15,
        title="from rows to columns by one exchange", needs=("all_to_all_by_permutes",),
    ),
    Exercise(
        id="guarded_update", lesson="20", kind="program", minutes=30,
        title="a step that all devices skip together", needs=("global_norm_of_shards",),
    ),
    Exercise(
        id="cached_attention", lesson="21", kind="program", minutes=35,
        title="a new token of each row attends to a split cache", needs=("parallel_attention",),
    ),
    Exercise(
        id="paged_attention", lesson="21", kind="program", minutes=30,
        title="attention to pages that lie in any order", needs=("cached_attention",),
    ),
    Exercise(
        id="sample_parallel", lesson="21", kind="program", minutes=25,
        title="a random token, of logits that no device has whole",
        needs=("reduce_max_location",),
    ),
    Exercise(
        id="speculative_accept", lesson="21", kind="program", minutes=30,
        title="which guessed tokens are kept, and what follows them",
    ),
    Exercise(
        id="page_tables", lesson="21", kind="value", minutes=25,
        title="pages that requests share, until one writes",
    ),
    Exercise(
        id="continuous_schedule", lesson="21", kind="value", minutes=25,
        title="which requests get which tokens computed in each step",
    ),
    Exercise(
        id="serving_metrics", lesson="21", kind="value", minutes=15,
        title="how long users wait, and how many are served in time",
    ),
    Exercise(
        id="quantized_bits", lesson="22", kind="value", minutes=10,
        title="what a number takes, with its part of the scales",
    ),
    Exercise(
        id="quantize_rows", lesson="22", kind="program", minutes=20,
        title="a matrix in 8 bits, whose rows are split", needs=("mean_over_devices",),
    ),
    Exercise(
        id="int8_row_linear", lesson="22", kind="program", minutes=25,
        title="a product with codes, slice by slice",
        needs=("quantize_rows", "parallel_swiglu"),
    ),
    Exercise(
        id="quantized_layers", lesson="22", kind="program", minutes=25,
        title="layers in 8 bits, whole only while they are used", needs=("remat_layers",),
    ),
    Exercise(
        id="int8_all_gather", lesson="22", kind="program", minutes=30,
        title="a gather in 8 bits, and a gradient straight through",
        needs=("quantize_rows", "fsdp_apply"),
    ),
    Exercise(
        id="prune_2_4", lesson="22", kind="program", minutes=15,
        title="two of every four numbers",
    ),
    Exercise(
        id="adam8bit_update", lesson="22", kind="program", minutes=35,
        title="a step of Adam with moments in 8 bits", needs=("mixed_precision_step",),
    ),
    Exercise(
        id="vocab_parallel_distillation_loss", lesson="22", kind="program", minutes=25,
        title="distillation over a split vocabulary",
        needs=("vocab_parallel_cross_entropy",),
    ),
    Exercise(
        id="adapter_parameters", lesson="23", kind="value", minutes=20,
        title="how many parameters each kind of adapter trains",
    ),
    Exercise(
        id="lora_row_linear", lesson="23", kind="program", minutes=20,
        title="a split matrix and its adapter, in one all-reduce",
        needs=("parallel_swiglu",),
    ),
    Exercise(
        id="adapter_gradients", lesson="23", kind="program", minutes=15,
        title="gradients of adapters alone", needs=("data_parallel_gradients",),
    ),
    Exercise(
        id="fsdp_lora_apply", lesson="23", kind="program", minutes=30,
        title="a frozen base, gathered and never reduced", needs=("fsdp_apply",),
    ),
    Exercise(
        id="nf4_linear", lesson="23", kind="program", minutes=40,
        title="a product with 4-bit weights, whole at no time", needs=("remat_layers",),
    ),
    Exercise(
        id="prefix_attention", lesson="23", kind="program", minutes=25,
        title="learned keys and values before the first position",
        needs=("parallel_attention",),
    ),
)  # fmt: skip


PLANNED = {
    number: topic
    for number, topic in {
        "06": "low communication",
        "14": "context parallel",
        "17": "mixture of experts",
        "20": "training for real",
        "21": "inference",
        "22": "smaller models",
        "23": "adapters",
        "24": "capstone",
    }.items()
    if number not in {row.number for row in LESSONS}
}
"""The topics of lessons that are not written yet, by their numbers."""


def lesson(number: str) -> Lesson:
    """Returns the lesson with this number or name, such as "2", "02" or "02_collectives".

    Raises:
        BadUseError: there is none.
    """
    wanted = number.zfill(2) if number.isdigit() else number
    for row in LESSONS:
        if wanted in (row.number, row.topic, row.name):
            return row
    numbers = ", ".join(row.number for row in LESSONS)
    if wanted in PLANNED:
        found = f"lesson {wanted}, {PLANNED[wanted]}, is planned and not written yet"
    else:
        found = f"there is no lesson {number!r}"
    raise BadUseError(f"lesson: {found}; use one of {numbers}")


def exercise(id: str) -> Exercise:
    """Returns the exercise with this id, which may be cut short as long as it is unambiguous.

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
