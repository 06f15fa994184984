"""What the path of a leaf in a decoder's parameters, gradients or optimizer state says about it."""

from typing import Any

from jax.tree_util import keystr

from jaxpar.model.few_bits import CODES, SCALES
from jaxpar.parallel.tensor import COLUMNS, ROWS

ADAPTER, BIAS = "_adapter", "_bias"
# Of an adapter, devices that split the matrix beside it by columns split b, and by rows a.
SPLIT_WITH = {"a": ROWS, "b": COLUMNS}


def is_adapter(path: tuple[Any, ...]) -> bool:
    """Whether a path leads to a part of an adapter."""
    return len(path) > 1 and keystr(path[-2:-1], simple=True).endswith(ADAPTER)


def split_as(path: tuple[Any, ...]) -> str:
    """The name of the matrix that devices split as they split this leaf; its own, if none."""
    owner, name = keystr(path[-2:-1], simple=True), keystr(path[-1:], simple=True)
    if name in (CODES, SCALES):
        return owner
    if is_adapter(path):
        matrix = owner.removesuffix(ADAPTER)
        return matrix if matrix in SPLIT_WITH[name] else name
    of_columns = name.removesuffix(BIAS)
    return of_columns if of_columns in COLUMNS else name
