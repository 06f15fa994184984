"""Exercise young_daly_interval (lesson 19): how often to save, if devices fail.

Your task: return the seconds between checkpoints at which least time is lost (Young and Daly).

Save it while `jaxpar` runs, or check it with `jaxpar check young_daly_interval`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   young_daly_interval(50, 10000) -> 1000.0
#   young_daly_interval(30, 54000) -> 1800.0
#   young_daly_interval(0, 3600) -> 0.0
#   young_daly_interval(-50, 10000) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def young_daly_interval(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """The time of work between two checkpoints that loses least, to first order.

    A checkpoint of C seconds after every t seconds of work costs a fraction C/t of the time. A
    failure every M seconds, on average, loses half an interval, which is a fraction t/(2M). The sum
    of both is least at this t.

    Source: Young 1974; Daly 2006, section 2

    Raises:
        ValueError: a time is negative or NaN.
    """
    raise NotImplementedError(
        "return the seconds between checkpoints at which least time is lost (Young and Daly)"
    )
