"""The roofline: what memory leaves of a device's arithmetic.

Source: Williams, Waterman and Patterson 2009, Roofline: An Insightful Visual Performance Model for
Multicore Architectures.
"""

from jaxpar.cost.communication import Number


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
