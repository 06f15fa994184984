"""Exercise bubble_fraction (lesson 15): the idle fraction of a pipeline.

Your task: return the idle fraction of the makespan, where all chunks take equally long.

Save it while `jaxpar` runs, or check it with `jaxpar check bubble_fraction`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   bubble_fraction(4, 8, 1) -> 0.2727272727272727
#   bubble_fraction(4, 8, 2) -> 0.15789473684210525
#   bubble_fraction(1, 5, 1) -> 0.0
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def bubble_fraction(stages: int, microbatches: int, chunks: int) -> float:
    """The fraction of a pipeline's makespan that is idle, where every chunk takes equally long.

    `stages` is the number of devices. A chunk is a group of consecutive layers. In GPipe and 1F1B
    a device holds one chunk, its stage; in interleaved 1F1B (lesson 16) it holds `chunks` of them,
    which are not consecutive. A backward may take longer than a forward. Transfers take no time.

    Narayanan et al. divide idle time by work alone, which is another fraction. Huang et al. divide
    it by the makespan, as this function does.

    Math: idle time / (idle time + work), of any one device
    Source: Huang et al. 2019 (GPipe), section 2.3; with several chunks, Narayanan et al. 2021
        (Megatron-LM), section 2.2
    """
    raise NotImplementedError(
        "return the idle fraction of the makespan, where all chunks take equally long"
    )
