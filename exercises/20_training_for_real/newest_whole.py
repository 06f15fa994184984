"""Exercise newest_whole (lesson 20): the newest checkpoint that is not damaged.

Your task: return the step of the newest folder whose files are all that its manifest lists.

Save it while `jaxpar` runs, or check it with `jaxpar check newest_whole`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   newest_whole({"step_9": {"a.bin": (64, 900)}, "step_10": {"a.bin": (64, 1000), "b.bin": (32,
#       77)}}, {"step_9": {"a.bin": (64, 900)}, "step_10": {"a.bin": (64, 1000), "b.bin": (32,
#       77)}}) -> 10
#   newest_whole({"step_9": {"a.bin": (64, 900)}, "step_10": {"a.bin": (64, 1000), "b.bin": (32,
#       76)}}, {"step_9": {"a.bin": (64, 900)}, "step_10": {"a.bin": (64, 1000), "b.bin": (32,
#       77)}}) -> 9
#   newest_whole({"step_9": {"a.bin": (64, 900)}, "step_10": {"a.bin": (64, 1000), "b.bin": (32,
#       77)}}, {"step_9": {"a.bin": (64, 900)}}) -> 9
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Mapping


def newest_whole(
    found: Mapping[str, Mapping[str, tuple[int, int]]],
    manifests: Mapping[str, Mapping[str, tuple[int, int]]],
) -> int | None:
    """The step of the newest checkpoint that is whole, or None if none is.

    A checkpoint is a folder named step_N, where N is the number of its step, in decimal digits and
    without zeros before them. A folder of any other name, such as step_N.tmp, is none. `found` has
    the files of each folder as they are on the disk, with the size and the crc32 of each.
    `manifests` has the same of what was written, by all processes together; a folder whose manifest
    is missing was not completed. A checkpoint is whole if every file of its manifest is found with
    that size and that crc32. Other files in its folder do not matter.

    Source: Orbax documentation, "Checkpoint format guide"
    """
    raise NotImplementedError(
        "return the step of the newest folder whose files are all that its manifest lists"
    )
