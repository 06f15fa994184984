"""Exercise zero_bubble_h1_schedule (lesson 16): weight gradients fill the bubble.

Your task: return a row of cells for each stage: 1F1B with I and W, W late enough to fill the end.

Save it while `jaxpar` runs, or check it with `jaxpar check zero_bubble_h1_schedule`.
"""

# What is judged (10 points; order must be right to earn the rest)
#   order         4  every stage takes every microbatch forward and backward, and no device waits
#                    for ever; idle cells need not be there; the order is that of 1F1B, with I in
#                    place of B: p - 1 - rank forwards (or all m, if they are fewer), then F and I
#                    in turn, then the I that are left; W anywhere after its I
#   bubble        3  idle at most (p - 1)(F + I - W) where F, I and W take equally long and m >=
#                    p; with fewer microbatches, no more than the library's
#   in_flight     3  at most p microbatches on each device, from F to W
#
# For example, where other results may be as right:
#   zero_bubble_h1_schedule(2, 1) -> [["0F0", "0I0", "0W0"], ["1F0", "1I0", "1W0"]]
# and with more devices and microbatches, among them random numbers of both.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def zero_bubble_h1_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """ZB-H1: 1F1B with each backward in two halves, where weight gradients fill part of the bubble.

    There is a row for each device, and a device holds one stage. Cells are as in 1F1B's table,
    except that "2I0" is the gradient with respect to the input of stage 2, and "2W0" is that with
    respect to its weights, which may come at any time after "2I0". No device has more microbatches
    in flight, from F to W, than the first device of 1F1B.

    Math: bubble (p - 1) * (F + I - W) if m >= p; at most min(m, p) microbatches in flight until W
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.1
    """
    raise NotImplementedError(
        "return a row of cells for each stage: 1F1B with I and W, W late enough to fill the end"
    )
