"""Exercise best_plan (lesson 19): the fastest plan that fits.

Your task: return the dict with the least step_seconds of those that fit, or None.

Save it while `jaxpar` runs, or check it with `jaxpar check best_plan`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   best_plan([{"mesh": "pp=3", "step_seconds": 3, "memory_bytes": 70}, {"mesh": "pp=1",
#       "step_seconds": 2, "memory_bytes": 90}, {"mesh": "pp=2", "step_seconds": 2.5,
#       "memory_bytes": 60}], 80) -> {"mesh": "pp=2", "step_seconds": 2.5, "memory_bytes": 60}
#   best_plan([{"mesh": "pp=2", "step_seconds": 3, "memory_bytes": 70}, {"mesh": "pp=1",
#       "step_seconds": 2, "memory_bytes": 90}], 50) -> None
#   best_plan([{"mesh": "pp=1", "step_seconds": 2, "memory_bytes": 70}, {"mesh": "pp=3",
#       "step_seconds": 2, "memory_bytes": 60}, {"mesh": "pp=2", "step_seconds": 3,
#       "memory_bytes": 10}], 80) -> {"mesh": "pp=1", "step_seconds": 2, "memory_bytes": 70}
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from typing import Any


def best_plan(plans: list[dict[str, Any]], device_bytes: float) -> dict[str, Any] | None:
    """The plan with least `step_seconds` of those whose `memory_bytes` fit; the first on ties.

    A plan fits if its memory_bytes <= device_bytes. If none does there is no best one: None. The
    plans may have other keys, too. The list and the plans in it stay as they are.
    """
    raise NotImplementedError(
        "return the dict with the least step_seconds of those that fit, or None"
    )
