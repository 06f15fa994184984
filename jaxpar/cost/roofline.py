"""The roofline: what memory, or a link, leaves of a device's arithmetic.

Sources: Williams, Waterman and Patterson 2009, Roofline: An Insightful Visual Performance Model for
Multicore Architectures; Austin et al. 2025, How to Scale Your Model, for links.
"""

from dataclasses import replace
from typing import Any

from jaxpar.checks import check_positive
from jaxpar.cost.communication import Link, Number
from jaxpar.cost.hardware import Cluster
from jaxpar.cost.network import collective_seconds, levels
from jaxpar.layout import Layout


def product_intensity(m: Number, k: Number, n: Number, *, element_bytes: Number = 2) -> float:
    """FLOPs for each byte of memory, of [m, k] times [k, n]; each matrix is read or written once.

    Math: 2mkn / (element_bytes * (mk + kn + mn))
    """
    return 2 * m * k * n / (element_bytes * (m * k + k * n + m * n))


def attainable_flops(
    intensity: Number, peak_flops: Number, memory_bytes_per_second: Number
) -> Number:
    """FLOPs in a second of a program with so many FLOPs for each byte of memory.

    Memory bounds it up to an intensity of peak / bandwidth (the ridge), arithmetic above.
    """
    return min(peak_flops, intensity * memory_bytes_per_second)


def tokens_to_hide(
    layout: Layout,
    axis: str | tuple[str, ...],
    cluster: Cluster,
    flops_per_second: Number,
    *,
    parameter_bytes: Number = 2,
) -> Any:
    """The least tokens per device with which data parallelism or FSDP over `axis` can be hidden.

    With fewer, sending a dense layer takes longer than computing it, even if all of it overlaps.
    Forward, FSDP gathers the layer while it does 2 FLOPs for each parameter and token. Backward, it
    gathers the layer again and reduce-scatters the gradients, and data parallelism all-reduces
    them: twice the bytes, beside twice the FLOPs. So one number holds for both techniques and both
    passes. It counts the batch's tokens divided by all devices of `layout`: tp and pp leave a
    device fewer parameters to send, for the same tokens. FSDP gathers for every microbatch, so
    there the batch is one microbatch.

    `flops_per_second` is what a device reaches in products, at most its peak; `parameter_bytes` are
    those of a parameter, and of its gradient, as they are sent. Links have no latency here.

    Math: flops_per_second * (seconds to gather one byte of the whole layer) * parameter_bytes / 2,
        divided by tp and pp; for many devices, flops_per_second / bandwidth for 2 bytes
    Source: jax-ml/scaling-book, gpus.md, Data Parallelism: 990e12 / 450e9 = 2200 tokens in a node
        of H100, 990e12 / 400e9 = 2475 beyond
    """
    inside, between = (Link(0, its.bytes_per_second) for its in (cluster.inside, cluster.between))
    at_once = replace(cluster, inside=inside, between=between)
    inner, outer = levels(layout, axis, cluster)
    gather = collective_seconds("all_gather", 1 / (inner * outer), layout, axis, at_once)
    return flops_per_second * gather * parameter_bytes / 2 / (layout.tp * layout.pp)


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
    check_positive(
        "tokens_that_hide_fsdp",
        {
            "fsdp": fsdp,
            "devices_per_node": devices_per_node,
            "flops_per_second": flops_per_second,
            "inside_bytes_per_second": inside_bytes_per_second,
            "between_bytes_per_second": between_bytes_per_second,
            "parameter_bytes": parameter_bytes,
        },
    )
    inner = min(fsdp, devices_per_node)
    if fsdp % inner:
        raise ValueError(
            f"tokens_that_hide_fsdp: {fsdp} devices in nodes of {devices_per_node}; they must fill "
            f"their nodes; use a multiple of {devices_per_node}"
        )
    outer = fsdp // inner
    # Of each parameter, the parts of its bytes that a device sends on its two links.
    inside = (inner - 1) / inner / inside_bytes_per_second
    between = (outer - 1) / outer / inner / between_bytes_per_second
    return flops_per_second * parameter_bytes / 2 * max(inside, between)
