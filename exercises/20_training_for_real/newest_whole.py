"""Exercise newest_whole (lesson 20): the newest checkpoint that is not damaged.

Your task: return the step of the newest folder whose files are all that its manifest lists.

Save it while `jaxpar` runs, or check it with `jaxpar check newest_whole`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   newest_whole({"step_10": {"params.0.bin": (5029, 2605480817), "optimizer.0.bin": (5029,
#       4169308741), "params.1.bin": (5030, 3133163871), "optimizer.1.bin": (5030, 2715582399),
#       "params.2.bin": (5031, 2334851559), "optimizer.2.bin": (5031, 2404827117),
#       "settings.json": (5032, 4016105479)}, "step_9": {"params.0.bin": (3158, 1322117304),
#       "optimizer.0.bin": (3158, 175979945), "params.1.bin": (3159, 323153949),
#       "optimizer.1.bin": (3159, 70985654), "params.2.bin": (3160, 752767291), "optimizer.2.bin":
#       (3160, 3492969080), "settings.json": (3161, 2789219406)}}, {"step_9": {"params.0.bin":
#       (3158, 1322117304), "optimizer.0.bin": (3158, 175979945), "params.1.bin": (3159,
#       323153949), "optimizer.1.bin": (3159, 70985654), "params.2.bin": (3160, 752767291),
#       "optimizer.2.bin": (3160, 3492969080), "settings.json": (3161, 2789219406)}, "step_10":
#       {"params.0.bin": (5029, 2605480817), "optimizer.0.bin": (5029, 4169308741),
#       "params.1.bin": (5030, 3133163871), "optimizer.1.bin": (5030, 2715582399), "params.2.bin":
#       (5031, 2334851559), "optimizer.2.bin": (5031, 2404827117), "settings.json": (5032,
#       4016105479)}}) -> 10
#   newest_whole({"step_8": {"params.0.bin": (6367, 11761768), "optimizer.0.bin": (6367,
#       1692857840), "params.1.bin": (6368, 3682523327), "optimizer.1.bin": (6368, 2380764447),
#       "params.2.bin": (6369, 144248947), "optimizer.2.bin": (6369, 3285177209), "settings.json":
#       (6370, 3133846279)}, "step_100": {"params.0.bin": (6177, 1105094193), "optimizer.0.bin":
#       (6177, 2643058928), "params.1.bin": (6178, 3281590885), "optimizer.1.bin": (6178,
#       1647882547), "params.2.bin": (6179, 1979643162), "optimizer.2.bin": (6179, 4282984061),
#       "settings.json": (6180, 3457402175)}, "step_9": {"params.0.bin": (2405, 383483662),
#       "optimizer.0.bin": (2405, 3707325242), "params.1.bin": (2406, 94927150),
#       "optimizer.1.bin": (2406, 2325558233), "params.2.bin": (2407, 345313848),
#       "optimizer.2.bin": (2407, 1287252768), "settings.json": (2408, 2066142961)}, "step_10":
#       {"params.0.bin": (4225, 121632061), "optimizer.0.bin": (4225, 22989416), "params.1.bin":
#       (4226, 533792608), "optimizer.1.bin": (4226, 35580840), "settings.json": (4227,
#       2880309929)}}, {"step_8": {"params.0.bin": (6367, 11761768), "optimizer.0.bin": (6367,
#       1692857840), "params.1.bin": (6368, 3682523327), "optimizer.1.bin": (6368, 2380764447),
#       "params.2.bin": (6369, 144248947), "optimizer.2.bin": (6369, 3285177209), "settings.json":
#       (6370, 3133846279)}, "step_9": {"params.0.bin": (2405, 383483662), "optimizer.0.bin":
#       (2405, 3707325242), "params.1.bin": (2406, 94927150), "optimizer.1.bin": (2406,
#       2325558233), "params.2.bin": (2407, 345313848), "optimizer.2.bin": (2407, 1287252768),
#       "settings.json": (2408, 2066142961)}, "step_10": {"params.0.bin": (4225, 121632061),
#       "optimizer.0.bin": (4225, 22989416), "params.1.bin": (4226, 533792608), "optimizer.1.bin":
#       (4226, 35580840), "settings.json": (4227, 2880309929)}, "step_100": {"params.0.bin":
#       (6177, 1105094193), "optimizer.0.bin": (6177, 2643058928), "params.1.bin": (6178,
#       3281590885), "optimizer.1.bin": (6178, 1647882547), "params.2.bin": (6179, 1979643162),
#       "optimizer.2.bin": (6179, 4282984061), "settings.json": (6180, 3457402175)}}) -> 100
#   newest_whole({"step_5": {"params.0.bin": (7763, 2256379633), "optimizer.0.bin": (7763,
#       1612402200), "params.1.bin": (7764, 1332478709), "optimizer.1.bin": (7764, 1816595736),
#       "params.2.bin": (7765, 2086646977), "optimizer.2.bin": (7765, 3087315779),
#       "settings.json": (7766, 3820321158)}, "step_0": {"params.0.bin": (6203, 3609109948),
#       "optimizer.0.bin": (6203, 2956856192), "params.1.bin": (6204, 3023661487),
#       "optimizer.1.bin": (6204, 1670404796), "params.2.bin": (6205, 3758767034),
#       "optimizer.2.bin": (6205, 580235070), "settings.json": (6206, 2486371349)}}, {"step_0":
#       {"params.0.bin": (6203, 3609109948), "optimizer.0.bin": (6203, 2956856192),
#       "params.1.bin": (6204, 3023661487), "optimizer.1.bin": (6204, 1670404796), "params.2.bin":
#       (6205, 3758767034), "optimizer.2.bin": (6205, 580235070), "settings.json": (6206,
#       2486371349)}, "step_5": {"params.0.bin": (7763, 2256379633), "optimizer.0.bin": (7763,
#       1612402200), "params.1.bin": (7764, 1332478709), "optimizer.1.bin": (7764, 1816595736),
#       "params.2.bin": (7765, 2086646977), "optimizer.2.bin": (7765, 3087315779),
#       "settings.json": (7766, 3820321158)}}) -> 5
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Mapping

from jaxpar.parallel.checkpoint_layout import Files


def newest_whole(found: Mapping[str, Files], manifests: Mapping[str, Files]) -> int | None:
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
