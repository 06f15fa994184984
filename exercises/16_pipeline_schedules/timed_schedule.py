"""Exercise timed_schedule (lesson 16): an open challenge: the shortest for given times.

Your task: return a row of cells for each stage, in an order that suits the times of the cells.

Save it while `jaxpar` runs, or check it with `jaxpar check timed_schedule`.
"""

# What is judged (10 points; order must be right to earn the rest)
#   order         4  every stage takes every microbatch forward and backward, and no device waits
#                    for ever; idle cells need not be there; any order will do
#   bubble        3  makespan at most that of the rule that is described below
#   in_flight     3  at most `limit` microbatches on each device, from F to W (or B)
#
# For example, where other results may be as right:
#   timed_schedule(2, 2, 1, f=1, i=1, w=1, transfer=0) -> [["0F0", "0I0", "0W0", "0F1", "0I1",
#       "0W1"], ["1F0", "1I0", "1W0", "1F1", "1I1", "1W1"]]
#   timed_schedule(4, 8, 0, f=2, i=2, w=1, transfer=1) raises ValueError
# and with more devices and microbatches, among them random numbers of both.
#
# Open challenge  find the shortest schedule, in timed_schedule(5, 8, 6, f=4, i=5, w=3,
#                 transfer=1). Every right answer earns all points. Its number is shown beside the
#                 library's, and the lowest that you have reached is kept.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def timed_schedule(
    stages: int, microbatches: int, limit: int, *, f: int, i: int, w: int, transfer: int
) -> list[list[str]]:
    """A schedule within a limit, made for given times: what can start first comes first.

    There is a row for each device, and a device holds one stage. Cells are as in 1F1B's table, but
    each backward is in two halves: "2I0" is the gradient with respect to the input of stage 2, and
    "2W0", at any time after it, is that with respect to its weights. A microbatch is in flight on a
    device from its F to its W, and no device may have more than `limit` in flight.

    F, I and W take `f`, `i` and `w`, and a B, both halves in one, takes `i + w`. What a stage sends
    to the next or to the previous one arrives `transfer` after the end of the cell, and keeps no
    device busy. A device that is free begins the I that has arrived, or else the F that has arrived
    if there is room for it, or else a W; if there is none of them, it waits.

    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 3, which has better rules

    Raises:
        ValueError: stages, microbatches or the limit are less than 1.
    """
    raise NotImplementedError(
        "return a row of cells for each stage, in an order that suits the times of the cells"
    )
