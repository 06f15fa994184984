"""Exercise one_f_one_b_schedule (lesson 16): a backward after each forward.

Your task: return a row of cells for each stage: some forwards, then forward and backward in turn.

Save it while `jaxpar` runs, or check it with `jaxpar check one_f_one_b_schedule`.
"""

# What is judged (10 points; order must be right to earn the rest)
#   order         4  every stage takes every microbatch forward and backward, and no device waits
#                    for ever; idle cells need not be there; the order is that of 1F1B: p - 1 -
#                    rank forwards (or all m, if they are fewer), then a forward and a backward in
#                    turn, then the backwards that are left
#   bubble        3  makespan at most (m + p - 1)(F + B), as GPipe's, with B = F and with B = 2F
#   in_flight     3  at most p - rank microbatches on device rank
#
# For example, where other results may be as right:
#   one_f_one_b_schedule(2, 1) -> [["0F0", "0B0"], ["1F0", "1B0"]]
# and with more devices and microbatches, among them random numbers of both.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def one_f_one_b_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """1F1B: after a few forwards, a backward follows each forward, so that fewer are in flight.

    There is a row for each device, and a device holds one stage. Cells are as in GPipe's table:
    "2F0" is the forward of microbatch 0 on stage 2, and "2B0" is its backward.

    Math: makespan = (m + p - 1) * (F + B); min(m, p - rank) microbatches in flight
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1
    """
    raise NotImplementedError(
        "return a row of cells for each stage: some forwards, then forward and backward in turn"
    )
