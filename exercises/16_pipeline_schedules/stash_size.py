"""Exercise stash_size (lesson 16): how many inputs a schedule keeps at most.

Your task: return how many activations each device must have room for: for each row, the peak.

Save it while `jaxpar` runs, or check it with `jaxpar check stash_size`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   stash_size([["0F0", "0F1", "0B0", "0B1"]]) -> [2]
#   stash_size([["0F0", "0I0", "0W0", "0F1", "0I1", "0W1"]]) -> [1]
#   stash_size([["0F0", "", "0B0"], ["", "1F0", "1B0"]]) -> [1, 1]
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def stash_size(table: list[list[str]]) -> list[int]:
    """How many activations each device must have room for, in chunks: one number per row.

    `table` has a row for each device, with cells such as "2F0": a stage, a kind and a microbatch.
    The kinds are F (forward), B (backward), and the two halves of a backward, I (input gradient)
    and W (weight gradient). An empty cell is idle. The activations of a cell F are kept from its
    start to the end of the B of the same stage and microbatch, or of the W where the backward is in
    two halves.

    Math: for each row, the most activations that are kept at once
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1
    """
    raise NotImplementedError(
        "return how many activations each device must have room for: for each row, the peak"
    )
