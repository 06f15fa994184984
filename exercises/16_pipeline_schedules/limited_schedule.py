"""Exercise limited_schedule (lesson 16): an open challenge: the shortest schedule.

Your task: return a row of cells for each stage, with at most `limit` microbatches in flight.

Save it while `jaxpar` runs, or check it with `jaxpar check limited_schedule`.
"""

# What is judged (10 points; order must be right to earn the rest)
#   order         4  every stage takes every microbatch forward and backward, and no device waits
#                    for ever; idle cells need not be there; any order will do
#   bubble        3  makespan at most that of 1F1B with min(limit, p - rank) - 1 forwards first,
#                    where F, I and W take 1 each, and B takes 2
#   in_flight     3  at most `limit` microbatches on each device, from F to B or W
#
# For example, where other results may be as right:
#   limited_schedule(3, 2, 1) -> [["0F0", "0B0", "0F1", "0B1"], ["1F0", "1B0", "1F1", "1B1"],
#       ["2F0", "2B0", "2F1", "2B1"]]
#   limited_schedule(4, 8, 0) raises ValueError
# and with more devices and microbatches, among them random numbers of both.
#
# Open challenge  find the shortest schedule, in limited_schedule(4, 8, 3). Every right answer
#                 earns all points. Its number is shown beside the library's, and the lowest that
#                 you have reached is kept.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def limited_schedule(stages: int, microbatches: int, limit: int) -> list[list[str]]:
    """1F1B with fewer forwards first, so that no device has more than `limit` in flight.

    There is a row for each device, and a device holds one stage. Cells are as in 1F1B's table. A
    backward may also be in two halves: "2I0" is the gradient with respect to the input of stage 2,
    and "2W0", at any time after it, is that with respect to its weights. A microbatch is in flight
    on a device from its F to its B, or to its W.

    Math: min(m, limit, p - rank) microbatches in flight
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1; for a given limit, Qi et al. 2024b
        (Pipeline Parallelism with Controllable Memory)

    Raises:
        ValueError: stages, microbatches or the limit are less than 1.
    """
    raise NotImplementedError(
        "return a row of cells for each stage, with at most `limit` microbatches in flight"
    )
