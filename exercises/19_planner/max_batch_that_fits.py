"""Exercise max_batch_that_fits (lesson 19): how many examples fit beside the weights.

Your task: return how many examples fit beside the states, or 0 if the states alone do not fit.

Save it while `jaxpar` runs, or check it with `jaxpar check max_batch_that_fits`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   max_batch_that_fits(100, 30, 20) -> 3
#   max_batch_that_fits(100, 40, 20) -> 3
#   max_batch_that_fits(100, 101, 20) -> 0
#   max_batch_that_fits(100, 30, 0) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def max_batch_that_fits(device_bytes: float, state_bytes: float, bytes_per_example: float) -> int:
    """The largest batch that fits on a device, next to a state that does not depend on the batch.

    The result is 0 where the state alone does not fit.

    Raises:
        ValueError: `bytes_per_example` is not positive, or another number negative.
    """
    raise NotImplementedError(
        "return how many examples fit beside the states, or 0 if the states alone do not fit"
    )
