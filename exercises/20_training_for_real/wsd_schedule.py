"""Exercise wsd_schedule (lesson 20): a learning rate that rises, stays and falls.

Your task: return the rate of a step: up to `peak`, constant, down to `final`, and constant again.

Save it while `jaxpar` runs, or check it with `jaxpar check wsd_schedule`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   wsd_schedule(0, peak=1.0, warmup=4, stable=3, decay=5, final=0.1) -> 0.25
#   wsd_schedule(1, peak=1.0, warmup=4, stable=3, decay=5, final=0.1) -> 0.5
#   wsd_schedule(2, peak=1.0, warmup=4, stable=3, decay=5, final=0.1) -> 0.75
#   wsd_schedule(-1, peak=1.0, warmup=4, stable=3, decay=5, final=0.1) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def wsd_schedule(
    step: int, *, peak: float, warmup: int, stable: int, decay: int, final: float
) -> float:
    """The learning rate of a step: it rises linearly, is constant, and then falls linearly.

    Steps are counted from 0. The first `warmup` steps rise by equal amounts, from peak/warmup in
    step 0 to `peak` in the last of them. The next `stable` steps have the rate `peak`. The next
    `decay` steps fall by equal amounts, and the last of them has the rate `final`, as have all
    steps after it. Each of the three numbers of steps may be 0.

    Math: peak*(step+1)/warmup; peak; peak + (final-peak)*(k+1)/decay in step k of decay; final
    Source: Hu et al. 2024 (MiniCPM), section 4, whose decay is exponential

    Raises:
        ValueError: a number of steps is negative, or not 0 <= final <= peak with peak above 0.
    """
    raise NotImplementedError(
        "return the rate of a step: up to `peak`, constant, down to `final`, and constant again"
    )
