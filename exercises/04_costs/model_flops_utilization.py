"""Exercise model_flops_utilization (lesson 04): the fraction of the peak that training reaches.

Your task: return the model's FLOPs per second as a fraction of what all devices could do.

Save it while `jaxpar` runs, or check it with `jaxpar check model_flops_utilization`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   model_flops_utilization(1000, 6000000000, 8, 10000000000000) -> 0.075
#   model_flops_utilization(238300.0, 3277734806784.0, 6144, 275000000000000.0) ->
#       0.4622894202513182
#   model_flops_utilization(7447.272727272727, 139594825728.0, 8, 312000000000000.0) ->
#       0.41650670613482516
#   model_flops_utilization(0, 6000000000, 8, 10000000000000) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def model_flops_utilization(
    tokens_per_second: float, flops_per_token: float, devices: int, peak_flops: float
) -> float:
    """The fraction of all devices' peak that training reaches (MFU).

    `tokens_per_second` is the rate of all devices together; `flops_per_token` is what the model
    takes, forward and backward, with nothing computed again; `peak_flops` is what one device could
    do in a second, with dense matrices. The result is not rounded, and not cut off where a wrong
    number makes it more than 1.

    Source: Chowdhery et al. 2022, appendix B

    Raises:
        ValueError: a number is not positive.
    """
    raise NotImplementedError(
        "return the model's FLOPs per second as a fraction of what all devices could do"
    )
