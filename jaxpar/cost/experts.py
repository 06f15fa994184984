"""What a layer of experts holds room for, and sends, when they are split over devices.

Every device routes its own tokens. Either each token travels to its experts and its results travel
back, by all-to-alls with equally many rows for all experts, or all tokens come to all devices, and
a reduce-scatter returns to each device the sums of its own. `jaxpar.parallel.expert` has both.

Sources: Lepikhin et al. 2020, GShard, section 3; Fedus, Zoph and Shazeer 2021, Switch Transformers,
section 2.2.
"""

import math

from jaxpar.checks import check_positive
from jaxpar.cost.communication import wire_bytes

LOAD_BIAS = "load_bias"
"""The name of the parameters whose gradient is a load; they count in no norm of gradients."""
DROPPED = "dropped"
"""The same of those whose gradient is the share of choices that find no row."""
ROUTE_BYTES = 4 + 4
"""Of a choice: the weight, and the number of the expert."""


def expert_capacity(tokens: int, *, experts: int, top_k: int, capacity_factor: float) -> int:
    """The rows that each expert has for the tokens of one device, rounded up.

    With a factor of 1, choices that fall evenly on the experts just find room.

    Source: Fedus, Zoph and Shazeer 2021, section 2.2
    """
    return math.ceil(tokens * top_k / experts * capacity_factor)


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
    sizes = {"tokens": tokens, "width": width, "experts": experts, "top_k": top_k}
    sizes |= {"capacity_factor": capacity_factor, "devices": devices}
    check_positive("dispatch_bytes", sizes | {"element_bytes": element_bytes})
    if top_k > experts:
        raise ValueError(
            f"dispatch_bytes: top_k is {top_k} of {experts} experts; use 1 to {experts}"
        )
    if experts % devices:
        raise ValueError(
            f"dispatch_bytes: {experts} experts on {devices} devices; use a number of devices that "
            "divides that of experts"
        )
    capacity = expert_capacity(
        tokens, experts=experts, top_k=top_k, capacity_factor=capacity_factor
    )
    row = width * element_bytes
    exchanged = 2 * wire_bytes("all_to_all", experts * capacity * row, devices)
    gathered = wire_bytes("all_gather", tokens * (row + top_k * ROUTE_BYTES), devices)
    scattered = wire_bytes("reduce_scatter", devices * tokens * row, devices)
    return float(exchanged), float(gathered + scattered)
