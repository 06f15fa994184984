"""Exercise layout_step_seconds (lesson 19): the time of a step, from a few figures.

Your task: return the seconds of a step: all microbatches, the bubble, and what gradients add.

Save it while `jaxpar` runs, or check it with `jaxpar check layout_step_seconds`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   layout_step_seconds(60, 10, pp=4, tp=5, microbatches=3, chunks=1, recompute=False,
#       flops_per_second=10, tp_seconds=2, gradient_seconds=0) -> 120.0
#   layout_step_seconds(60, 10, pp=4, tp=5, microbatches=3, chunks=3, recompute=True,
#       flops_per_second=10, tp_seconds=2, gradient_seconds=40) -> 126.0
#   layout_step_seconds(60, 10, pp=1, tp=1, microbatches=8, chunks=1, recompute=False,
#       flops_per_second=100, tp_seconds=0, gradient_seconds=30) -> 294.0
#   layout_step_seconds(-60, 10, pp=2, tp=3, microbatches=4, chunks=2, flops_per_second=10,
#       tp_seconds=5, gradient_seconds=50, recompute=False) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def layout_step_seconds(
    parameters: float,
    tokens: float,
    *,
    pp: int,
    tp: int,
    microbatches: int,
    chunks: int,
    recompute: bool,
    flops_per_second: float,
    tp_seconds: float,
    gradient_seconds: float,
) -> float:
    """The seconds of a step of one layout, from a few figures.

    A model of so many `parameters` is split evenly over `pp` stages of `tp` devices. Every replica
    takes `microbatches` of so many `tokens`. A token takes 2 FLOPs for each parameter forward, and
    4 backward; with `recompute` the backward pass computes the whole forward pass again. A device
    does `flops_per_second`.

    What tensor parallelism sends for a microbatch, forward and backward, takes `tp_seconds` on each
    stage, and nothing hides it. The schedule is 1F1B, interleaved if a stage has several `chunks`:
    a device idles while it could work on pp - 1 chunks of a microbatch, forward and backward, with
    what they send. The sum of the gradients over the replicas takes `gradient_seconds`. It overlaps
    with what is computed in the backward pass of one microbatch, the last one, recomputation
    included; only the rest takes time of its own. Nothing else takes time.

    Source: Narayanan et al. 2021, section 2.2; Li et al. 2020, PyTorch Distributed, section 3.2.3

    Raises:
        ValueError: one of pp, tp, microbatches and chunks is below 1, flops_per_second is not above
            0, or another number is negative.
    """
    raise NotImplementedError(
        "return the seconds of a step: all microbatches, the bubble, and what gradients add"
    )
