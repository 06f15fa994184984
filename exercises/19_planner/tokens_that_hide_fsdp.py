"""Exercise tokens_that_hide_fsdp (lesson 19): the tokens per device below which FSDP waits.

Your task: return the tokens per device with which computing a layer takes as long as gathering it.

Save it while `jaxpar` runs, or check it with `jaxpar check tokens_that_hide_fsdp`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   tokens_that_hide_fsdp(4, devices_per_node=4, flops_per_second=1200, inside_bytes_per_second=3,
#       between_bytes_per_second=1, parameter_bytes=2) -> 300.0
#   tokens_that_hide_fsdp(8, devices_per_node=4, flops_per_second=1200, inside_bytes_per_second=4,
#       between_bytes_per_second=2, parameter_bytes=2) -> 225.0
#   tokens_that_hide_fsdp(8, devices_per_node=4, flops_per_second=1200, inside_bytes_per_second=3,
#       between_bytes_per_second=0.25, parameter_bytes=2) -> 600.0
#   tokens_that_hide_fsdp(12, devices_per_node=8, flops_per_second=989000000000000.0,
#       inside_bytes_per_second=450000000000.0, between_bytes_per_second=50000000000.0,
#       parameter_bytes=2) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def tokens_that_hide_fsdp(
    fsdp: int,
    *,
    devices_per_node: int,
    flops_per_second: float,
    inside_bytes_per_second: float,
    between_bytes_per_second: float,
    parameter_bytes: float,
) -> float:
    """The least tokens per device with which computing a layer forward hides its gather.

    Each of `fsdp` devices holds an equal part of the layer, and computes 2 FLOPs for each parameter
    and token. The devices fill one node, or a part of it, or whole nodes. The gather has two rings.
    By its network card, of `between_bytes_per_second`, a device sends in a ring of the devices that
    have the same place in their nodes, until each of them holds the parts of this place. Inside its
    node, at `inside_bytes_per_second`, it sends in a ring of the node what its place holds, until
    each device has the whole layer. Both go on at once, in small pieces, and links have no latency.
    The result need not be a whole number.

    Source: jax-ml/scaling-book, gpus.md, cross-node collectives, and Data Parallelism

    Raises:
        ValueError: a number is not positive, or there are more devices than in a node and they do
            not fill whole nodes.
    """
    raise NotImplementedError(
        "return the tokens per device with which computing a layer takes as long as gathering it"
    )
