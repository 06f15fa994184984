"""Exercise faster_plan (lesson 19): a bad plan, 1.3 times faster by one change.

Your task: return the plan with one choice changed, so that a step takes 1/1.3 of its time or less.

Save it while `jaxpar` runs, or check it with `jaxpar check faster_plan`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example, where other results may be as right:
#   faster_plan({"pp": 2, "dp": 2, "fsdp": 1, "tp": 32, "chunks": 1, "microbatch": 1, "remat":
#       "none"}, {"model": "llama2-7b", "layers": 32, "hardware": "a100", "devices_per_node": 8,
#       "devices": 128, "batch": 128, "sequence": 2048}, {"arithmetic": 0.466, "recomputation":
#       0.00829, "memory traffic": 0.0207, "pp": 0.00116, "dp": 0.0112, "fsdp": 0.0, "tp": 1.37,
#       "bubble": 0.0286}) -> {"pp": 2, "dp": 8, "fsdp": 1, "tp": 8, "chunks": 1, "microbatch": 1,
#       "remat": "none"}
#   faster_plan({"pp": 4, "dp": 1, "fsdp": 1, "tp": 8, "chunks": 1, "microbatch": 8, "remat":
#       "full"}, {"model": "llama2-70b", "layers": 80, "hardware": "b200", "devices_per_node": 8,
#       "devices": 32, "batch": 8, "sequence": 2048}, {"arithmetic": 0.178, "recomputation":
#       0.0608, "memory traffic": 0.0155, "pp": 0.000506, "dp": 0.0, "fsdp": 0.0, "tp": 0.0767,
#       "bubble": 0.955}) -> {"pp": 4, "dp": 1, "fsdp": 1, "tp": 8, "chunks": 1, "microbatch": 1,
#       "remat": "full"}
#   faster_plan({"pp": 4, "dp": 2, "fsdp": 1, "tp": 8, "chunks": 1, "microbatch": 2, "remat":
#       "full"}, {"model": "llama3-70b", "layers": 80, "hardware": "h100", "devices_per_node": 8,
#       "devices": 64, "batch": 384, "sequence": 4096}, {"arithmetic": 22.3, "recomputation":
#       7.31, "memory traffic": 0.703, "pp": 0.0244, "dp": 0.0611, "fsdp": 0.0, "tp": 7.36,
#       "bubble": 1.14}) -> {"pp": 4, "dp": 2, "fsdp": 1, "tp": 8, "chunks": 1, "microbatch": 2,
#       "remat": "none"}
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from typing import Any


def faster_plan(
    plan: dict[str, Any], job: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    """A plan that is at least 1.3 times as fast as `plan`, by one change.

    A plan has the sizes of its axes, "pp", "dp", "fsdp" and "tp"; "chunks", the parts of the model
    on each stage; "microbatch", the examples that go through a device at once; "remat", which is
    "none" or "full". Every plan that is given has one of four faults: tensor parallelism leaves its
    node, the pipeline has too few microbatches or chunks, FSDP gathers for too few tokens, or
    layers are recomputed without need. One change is another value of "chunks", "microbatch" or
    "remat", or other sizes of axes, with as many devices in all.

    `seconds` says what a step of `plan` spends: "arithmetic", "recomputation", "memory traffic",
    the "bubble", and for each axis the time that devices wait for what is sent over it. Tensor
    parallelism comes with sequence parallelism. Over dp ZeRO-1 shards the optimizer's states, and
    over fsdp ZeRO-3 shards everything.

    `job` has the "model" with its number of "layers", the "hardware" with its "devices_per_node",
    the number of "devices", and "batch" (over all devices) times "sequence" tokens. The groups of
    tp fill nodes first. The result is judged by the formulas of `jaxpar plan --overlap`. It must
    leave a tenth of a device's memory free. dp * fsdp * microbatch must divide the batch. With
    several chunks, pp must divide the number of microbatches, and pp * (chunks - 1) must be less
    than the layers. `plan` stays as it is.

    Source: Narayanan et al. 2021, section 3, takeaways 1 to 3; jax-ml/scaling-book, gpus.md
    """
    raise NotImplementedError(
        "return the plan with one choice changed, so that a step takes 1/1.3 of its time or less"
    )
