"""Exercise interleaved_schedule (lesson 16): several chunks on each device.

Your task: return a row of cells for each device, which holds every p-th stage: 1F1B over chunks.

Save it while `jaxpar` runs, or check it with `jaxpar check interleaved_schedule`.
"""

# What is judged (10 points; order must be right to earn the rest)
#   order         4  every stage takes every microbatch forward and backward, and no device waits
#                    for ever; idle cells need not be there; the order is that of interleaved
#                    1F1B: p microbatches through each chunk of a device, in turn, then the next
#                    p, backward from the last chunk on; and after some forwards, a backward and a
#                    forward in turn, then the backwards that are left
#   bubble        3  idle at most (p - 1)(F + B), F and B of one chunk: 1/chunks of 1F1B's, with B
#                    = F and with B = 2F
#   in_flight     3  at most 2(p - rank - 1) + (chunks - 1)p + 1 chunks on device rank
#
# For example, where other results may be as right:
#   interleaved_schedule(1, 1, 2) -> [["0F0", "1F0", "1B0", "0B0"]]
#   interleaved_schedule(4, 5, 2) raises ValueError
# and with more devices and microbatches, among them random numbers of both.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def interleaved_schedule(stages: int, microbatches: int, chunks: int) -> list[list[str]]:
    """Interleaved 1F1B: each device holds several chunks of layers, so the bubble is shorter.

    `stages` is the number p of devices. Chunk c of device `rank` is stage c*p + rank in the cells:
    with 4 devices, "5F0" is the forward of microbatch 0 on chunk 1 of device 1. In the forward
    pass, p microbatches go through chunk 0, then the same p through chunk 1, and so on; then come
    the next p. In the backward pass, the last chunk comes first.

    Math: bubble (p - 1) * (F + B), F and B of one chunk; in flight at most
        min(m*v, 2(p - rank - 1) + (v - 1)p + 1) chunks
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.2

    Raises:
        ValueError: the number of microbatches is not a multiple of the number of devices, or there
            are fewer than 2 chunks.
    """
    raise NotImplementedError(
        "return a row of cells for each device, which holds every p-th stage: 1F1B over chunks"
    )
