"""The exercises in the order of the course.

A row: id, number of its lesson, title, kind, minutes, exercises that help with it, and the module
of its contract; `jaxpar.course.catalog.Exercise` says what each means.
"""

from typing import Literal

Kind = Literal["program", "value", "specs", "schedule"]
Row = tuple[str, str, str, Kind, int, tuple[str, ...], str]

_DEVICES = "jaxpar.contracts.devices"
_COLLECTIVES = "jaxpar.contracts.collectives"
_RINGS = "jaxpar.contracts.ring_and_tree"
_COSTS = "jaxpar.contracts.costs"
_DATA = "jaxpar.contracts.data_parallel"
_BUCKETS = "jaxpar.contracts.buckets"
_SERVER = "jaxpar.contracts.parameter_server"
_SAMPLER = "jaxpar.contracts.sampler"
_PRECISION = "jaxpar.contracts.precision"
_ZERO = "jaxpar.contracts.zero"
_FSDP = "jaxpar.contracts.fsdp"
_REMAT = "jaxpar.contracts.remat"
_SHARDINGS = "jaxpar.contracts.shardings"
_TENSOR = "jaxpar.contracts.tensor"
_TENSOR_SPECS = "jaxpar.contracts.tensor_specs"
_VOCABULARY = "jaxpar.contracts.vocabulary"
_SEQUENCE = "jaxpar.contracts.sequence"
_RING_MATMUL = "jaxpar.contracts.ring_matmul"
_TENSOR_ND = "jaxpar.contracts.tensor_nd"
_GPIPE = "jaxpar.contracts.gpipe"
_SCHEDULES = "jaxpar.contracts.schedules"
_PLANNER = "jaxpar.contracts.planner"

ROWS: tuple[Row, ...] = (
    (
        "device_coordinates", "01", "the position of a device in a mesh",
        "value", 10, (), _DEVICES,
    ),
    (
        "local_shape", "01", "the shape of each device's part",
        "value", 15, (), _DEVICES,
    ),
    (
        "add_rank", "01", "add this device's index",
        "program", 10, (), _DEVICES,
    ),
    (
        "mean_over_devices", "02", "a mean by one all-reduce",
        "program", 10, ("add_rank",), _COLLECTIVES,
    ),
    (
        "scatter", "02", "to each device one part of the root's array",
        "program", 20, ("mean_over_devices",), _COLLECTIVES,
    ),
    (
        "gather", "02", "every device's array, on the root only",
        "program", 20, ("scatter",), _COLLECTIVES,
    ),
    (
        "reduce_max_location", "02", "the maximum, and who holds it",
        "program", 25, ("mean_over_devices",), _COLLECTIVES,
    ),
    (
        "all_to_all_by_permutes", "02", "a transpose across devices",
        "program", 30, ("scatter",), _COLLECTIVES,
    ),
    (
        "ring_reduce_scatter", "03", "sums that travel round a ring",
        "program", 30, ("all_to_all_by_permutes",), _RINGS,
    ),
    (
        "two_way_ring_all_gather", "03", "both ways round the ring at once",
        "program", 30, ("all_to_all_by_permutes",), _RINGS,
    ),
    (
        "tree_broadcast", "03", "from one to all in log2 n steps",
        "program", 30, ("scatter",), _RINGS,
    ),
    (
        "recursive_doubling_all_reduce", "03", "a sum in log2 n exchanges",
        "program", 25, ("tree_broadcast",), _RINGS,
    ),
    (
        "hierarchical_all_reduce", "03", "fast links first, slow links least",
        "program", 30, ("ring_reduce_scatter",), _RINGS,
    ),
    (
        "training_state_bytes", "04", "what a model takes before it sees a token",
        "value", 10, (), _COSTS,
    ),
    (
        "transformer_step_flops", "04", "all products of a step, counted",
        "value", 15, (), _COSTS,
    ),
    (
        "model_flops_utilization", "04", "the share of the peak that is of use",
        "value", 5, ("transformer_step_flops",), _COSTS,
    ),
    (
        "all_reduce_seconds", "04", "how long a ring takes on a link",
        "value", 10, ("ring_reduce_scatter",), _COSTS,
    ),
    (
        "hierarchical_all_reduce_seconds", "04", "on two kinds of links",
        "value", 10, ("all_reduce_seconds", "hierarchical_all_reduce"), _COSTS,
    ),
    (
        "data_parallel_gradients", "05", "gradients of a split batch",
        "program", 20, ("mean_over_devices",), _DATA,
    ),
    (
        "accumulate_gradients", "05", "many microbatches, one all-reduce",
        "program", 30, ("data_parallel_gradients",), _DATA,
    ),
    (
        "bucketed_all_reduce", "05", "several leaves in one all-reduce",
        "program", 30, ("data_parallel_gradients",), _BUCKETS,
    ),
    (
        "parameter_server_step", "05", "one device updates for all",
        "program", 25, ("data_parallel_gradients", "gather"), _SERVER,
    ),
    (
        "masked_mean", "05", "a mean that leaves padding out",
        "program", 15, ("mean_over_devices",), _DATA,
    ),
    (
        "shard_indices", "05", "which examples each device takes",
        "value", 20, (), _SAMPLER,
    ),
    (
        "update_loss_scale", "07", "how the factor of the loss follows",
        "program", 15, (), _PRECISION,
    ),
    (
        "mixed_precision_step", "07", "a step in float16 that skips overflows",
        "program", 30, ("update_loss_scale",), _PRECISION,
    ),
    (
        "activation_bytes", "08", "what a GPT keeps for its gradient",
        "value", 15, (), _REMAT,
    ),
    (
        "remat_layers", "08", "keep the inputs of segments only",
        "program", 25, ("activation_bytes",), _REMAT,
    ),
    (
        "zero1_update", "09", "each device updates its rows",
        "program", 30, ("data_parallel_gradients",), _ZERO,
    ),
    (
        "global_norm_of_shards", "09", "one norm of what all share",
        "program", 15, ("mean_over_devices",), _ZERO,
    ),
    (
        "zero2_accumulate", "09", "gradients shared as they are added up",
        "program", 25, ("accumulate_gradients", "zero1_update"), _ZERO,
    ),
    (
        "fsdp_apply", "10", "one layer whole at a time",
        "program", 25, ("zero1_update", "remat_layers"), _FSDP,
    ),
    (
        "hybrid_gradients", "10", "rows in a node, copies between nodes",
        "program", 15, ("zero1_update",), _FSDP,
    ),
    (
        "fsdp_shardings", "10", "what the compiler must know",
        "specs", 20, ("local_shape",), _SHARDINGS,
    ),
    (
        "parallel_swiglu", "11", "a gated MLP by columns and rows",
        "program", 20, ("mean_over_devices",), _TENSOR,
    ),
    (
        "parallel_attention", "11", "each device has its heads",
        "program", 35, ("parallel_swiglu",), _TENSOR,
    ),
    (
        "megatron_specs", "11", "the same, made by the compiler",
        "specs", 15, ("parallel_swiglu", "local_shape"), _TENSOR_SPECS,
    ),
    (
        "vocab_parallel_embedding", "12", "rows that the devices share",
        "program", 20, ("parallel_swiglu",), _VOCABULARY,
    ),
    (
        "vocab_parallel_cross_entropy", "12", "a loss of logits that no device has whole",
        "program", 30, ("vocab_parallel_embedding",), _VOCABULARY,
    ),
    (
        "sequence_parallel_mlp", "12", "positions split between the blocks",
        "program", 20, ("parallel_swiglu",), _SEQUENCE,
    ),
    (
        "ring_matmul", "12", "a product whose rows travel",
        "program", 30, ("ring_reduce_scatter", "sequence_parallel_mlp"), _RING_MATMUL,
    ),
    (
        "summa_matmul", "13", "blocks of a product, on a square of devices",
        "program", 30, ("fsdp_apply",), _TENSOR_ND,
    ),
    (
        "matmul_2_5d", "13", "several squares, and one matrix in all",
        "program", 15, ("summa_matmul",), _TENSOR_ND,
    ),
    (
        "matmul_3d", "13", "one product on each device of a cube",
        "program", 20, ("summa_matmul",), _TENSOR_ND,
    ),
    (
        "gpipe_schedule", "15", "a table of who does what, in which order",
        "schedule", 15, (), _SCHEDULES,
    ),
    (
        "bubble_fraction", "15", "the idle share of a pipeline",
        "value", 10, ("gpipe_schedule",), _SCHEDULES,
    ),
    (
        "pipeline_forward", "15", "microbatches through all stages, one each tick",
        "program", 30, ("gpipe_schedule",), _GPIPE,
    ),
    (
        "one_f_one_b_schedule", "16", "a backward after each forward",
        "schedule", 20, ("gpipe_schedule",), _SCHEDULES,
    ),
    (
        "interleaved_schedule", "16", "several chunks on each device",
        "schedule", 35, ("one_f_one_b_schedule",), _SCHEDULES,
    ),
    (
        "zero_bubble_h1_schedule", "16", "weight gradients fill the bubble",
        "schedule", 25, ("one_f_one_b_schedule",), _SCHEDULES,
    ),
    (
        "stash_size", "16", "what a schedule keeps at most",
        "value", 15, ("gpipe_schedule",), _SCHEDULES,
    ),
    (
        "kv_cache_bytes", "19", "what tokens leave behind",
        "value", 5, (), _PLANNER,
    ),
    (
        "max_batch_that_fits", "19", "how many find room beside the weights",
        "value", 5, ("kv_cache_bytes",), _PLANNER,
    ),
    (
        "young_daly_interval", "19", "how often to save, if devices fail",
        "value", 10, (), _PLANNER,
    ),
    (
        "best_plan", "19", "the fastest that fits",
        "value", 10, (), _PLANNER,
    ),
)  # fmt: skip
