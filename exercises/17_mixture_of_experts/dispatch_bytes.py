"""Exercise dispatch_bytes (lesson 17): an all-to-all or a gather: which sends less.

Your task: return the bytes that a device sends by all-to-alls, and those by gather and scatter.

Save it while `jaxpar` runs, or check it with `jaxpar check dispatch_bytes`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   dispatch_bytes(64, 32, experts=8, top_k=2, capacity_factor=1.25, devices=4, element_bytes=4)
#       -> [30720.0, 52224.0]
#   dispatch_bytes(64, 32, experts=8, top_k=2, capacity_factor=1.25, devices=1, element_bytes=4)
#       -> [0.0, 0.0]
#   dispatch_bytes(10, 3, experts=4, top_k=1, capacity_factor=1.0, devices=2, element_bytes=2) ->
#       [72.0, 200.0]
#   dispatch_bytes(0, 6, experts=8, top_k=2, capacity_factor=1.25, devices=4, element_bytes=2)
#       raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def dispatch_bytes(
    tokens: int,
    width: int,
    *,
    experts: int,
    top_k: int,
    capacity_factor: float,
    devices: int,
    element_bytes: float,
) -> tuple[float, float]:
    """Bytes that a device sends forward in a layer of experts: by all-to-alls, and by a gather.

    Each device has `tokens` tokens of `width` elements, and each token goes to `top_k` of the
    `experts` experts, which are split over the devices. The first number is for all-to-alls: each
    expert has rows for tokens * top_k / experts * capacity_factor tokens of every device, rounded
    up. All rows are sent to their experts, empty ones too, and all results are sent back. The
    second number is for a gather: each device gathers all tokens and, for each choice, a weight and
    the number of an expert, 4 bytes each. Then a reduce-scatter returns the sums, in elements of as
    many bytes. What a device has for itself is not sent.

    Source: Lepikhin et al. 2020 (GShard), section 3; Fedus, Zoph and Shazeer 2021 (Switch), section
        2.2

    Raises:
        ValueError: a number is not positive, `top_k` is above `experts`, or `devices` does not
            divide `experts`.
    """
    raise NotImplementedError(
        "return the bytes that a device sends by all-to-alls, and those by gather and scatter"
    )
