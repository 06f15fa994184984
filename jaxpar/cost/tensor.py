"""What each device holds and sends of one matrix product and its gradient, in one to three dims.

A product is y = x @ w. Its backward pass has two more products: the gradient of x is that of y
times w transposed, and the gradient of w is x transposed times that of y.

Sources: Shoeybi et al. 2019, Megatron-LM, section 3; van de Geijn and Watts 1997, SUMMA; Cannon
1969; Wang et al. 2022, Tesseract; Agarwal et al. 1995, A three-dimensional approach to parallel
matrix multiplication.
"""

from dataclasses import dataclass

from jaxpar.cost.communication import Number, wire_bytes


@dataclass(frozen=True)
class Product:
    """Bytes of the three whole matrices."""

    x: Number
    w: Number
    y: Number


@dataclass(frozen=True)
class DeviceCost:
    """What one of `devices` devices holds and sends.

    Attributes:
        devices: how many there are.
        x: bytes that it holds of x.
        w: bytes that it holds of w.
        y: bytes that it holds of y.
        kept: bytes of x and w that it keeps for the gradient.
        forward: bytes it sends for the product.
        backward: bytes it sends for the two products of the gradient.
    """

    devices: int
    x: Number
    w: Number
    y: Number
    kept: Number
    forward: Number
    backward: Number

    @property
    def sent(self) -> Number:
        """Bytes it sends in all, forward and backward."""
        return self.forward + self.backward


def split_columns(whole: Product, n: int) -> DeviceCost:
    """1D, Megatron's first matrix: w and y are split by columns, x is on every device.

    Math: backward an all-reduce of x's gradient
    Source: Shoeybi et al. 2019, section 3
    """
    x, w, y = whole.x, _part(whole.w, n), _part(whole.y, n)
    return DeviceCost(n, x, w, y, x + w, 0, wire_bytes("all_reduce", x, n))


def split_rows(whole: Product, n: int) -> DeviceCost:
    """1D, Megatron's second matrix: x is split by columns, w by rows, y is on every device.

    Math: forward an all-reduce of y
    Source: Shoeybi et al. 2019, section 3
    """
    x, w, y = _part(whole.x, n), _part(whole.w, n), whole.y
    return DeviceCost(n, x, w, y, x + w, wire_bytes("all_reduce", y, n), 0)


def split_2d(whole: Product, q: int) -> DeviceCost:
    """2D by SUMMA: q*q devices with a block of each matrix.

    Math: forward gathers a row of blocks of x, a column of w: (q-1)(x + w)/q^2; backward the same
        again, and scatters sums of as many bytes
    Source: van de Geijn and Watts 1997
    """
    return split_2_5d(whole, q, 1)


def split_cannon(whole: Product, q: int) -> DeviceCost:
    """2D by Cannon: each block moves once to its first place, then q-1 times to a neighbour.

    All q blocks of x and of w that come by are kept.

    Math: forward q blocks of x and q of w: (x + w)/q; backward as many
    Source: Cannon 1969
    """
    n = q * q
    x, w, y = (_part(matrix, n) for matrix in (whole.x, whole.w, whole.y))
    come_by = q * (x + w)
    return DeviceCost(n, x, w, y, come_by, come_by, come_by)


def split_2_5d(whole: Product, q: int, depth: int) -> DeviceCost:
    """2.5D: `depth` squares of q*q devices, each with its rows of x and y, and with all of w.

    Math: as 2D with x/depth; backward besides an all-reduce of a block of w, over depth
    Source: Wang et al. 2022
    """
    n = q * q
    x, w, y = _part(whole.x, depth * n), _part(whole.w, n), _part(whole.y, depth * n)
    once, over_depth = (q - 1) * (x + w), wire_bytes("all_reduce", w, depth)
    return DeviceCost(depth * n, x, w, y, x + w, once, 2 * once + over_depth)


def split_3d(whole: Product, q: int) -> DeviceCost:
    """3D: q*q*q devices; each gathers x and w, multiplies once, and keeps its part of a sum.

    All q blocks of x and of w that it gathers are kept.

    Math: forward (q-1)(x + w + y)/q^3, backward the same
    Source: Agarwal et al. 1995
    """
    n = q**3
    x, w, y = (_part(matrix, n) for matrix in (whole.x, whole.w, whole.y))
    once = (q - 1) * (x + w + y)
    return DeviceCost(n, x, w, y, q * (x + w), once, once)


def _part(matrix_bytes: Number, n: int) -> Number:
    """One of n equal parts, as an int if n divides an int."""
    return matrix_bytes / n if matrix_bytes % n else matrix_bytes // n
