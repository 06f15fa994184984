"""The roofline: what memory, or a link, leaves of a device's arithmetic.

Sources: Williams, Waterman and Patterson 2009, Roofline: An Insightful Visual Performance Model for
Multicore Architectures; Austin et al. 2025, How to Scale Your Model, for links.
"""

from dataclasses import replace
from typing import Any

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
