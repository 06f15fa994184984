"""Wrong specs for the compiler's tensor parallelism that people write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.sharding import PartitionSpec as P
from jax.tree_util import tree_map_with_path

from jaxpar.contracts.base import Mistake

COLUMNS, ROWS = -1, -2
_KV = ("key", "value")
_LAST = ("output", "down")
_FIRST = ("query", *_KV, "gate", "up")


def _right(part: str, name: str) -> int | None:
    if name in _FIRST:
        return COLUMNS
    return ROWS if name in _LAST else None


def _split(choose: Callable[[str, str], int | None], axes: Callable = lambda axis: axis) -> Any:
    """Splits, of each leaf, the dim that `choose` finds by part and name, counted from the last."""

    def function(params: dict[str, Any], *, axis: str) -> dict[str, Any]:
        def lie(path: tuple[Any, ...], leaf: Any) -> P:
            dim = choose(path[0].key, path[-1].key)
            return P() if dim is None else P(*[None] * (len(leaf.shape) + dim), axes(axis))

        return tree_map_with_path(lie, params)

    return function


def _unless(part_or_names: tuple[str, ...], dim: int | None = None) -> Callable:
    """Right, but for these parts or names."""

    def choose(part: str, name: str) -> int | None:
        return dim if part in part_or_names or name in part_or_names else _right(part, name)

    return _split(choose)


def _swapped(part: str, name: str) -> int | None:
    return {COLUMNS: ROWS, ROWS: COLUMNS}.get(_right(part, name) or 0)


def _dim_l(params: dict[str, Any], *, axis: str) -> dict[str, Any]:
    right = _split(_right)(params, axis=axis)

    def lie(path: tuple[Any, ...], leaf: Any) -> P:
        spec = right[path[0].key][path[-1].key]
        return P(axis) if len(leaf.shape) == 3 else spec

    return tree_map_with_path(lie, params)


def _dims_of_one_layer(params: dict[str, Any], *, axis: str) -> dict[str, Any]:
    specs = {COLUMNS: P(None, axis), ROWS: P(axis), None: P()}
    return tree_map_with_path(lambda path, _: specs[_right("", path[-1].key)], params)


def _largest_dim(params: dict[str, Any], *, axis: str) -> dict[str, Any]:
    def lie(path: tuple[Any, ...], leaf: Any) -> P:
        if _right("", path[-1].key) is None:
            return P()
        *stacked, rows, columns = leaf.shape
        return P(*[None] * (len(stacked) + (columns > rows)), axis)

    return tree_map_with_path(lie, params)


MEGATRON_SPECS = (
    Mistake("all_whole", _split(lambda *_: None), "sharding"),
    Mistake("only_mlp_split", _unless(("attention",)), "sharding"),
    Mistake("only_attention_split", _unless(("mlp",)), "sharding"),
    Mistake("kv_whole", _unless(_KV), "sharding"),
    Mistake("scales_split", _unless(("scale",), COLUMNS), "sharding"),
    Mistake("rows_and_columns_swapped", _split(_swapped), "communication"),
    Mistake("columns_everywhere", _unless(_LAST, COLUMNS), "communication"),
    Mistake("rows_everywhere", _unless(_FIRST, ROWS), "communication"),
    Mistake("kv_by_rows", _unless(_KV, ROWS), "communication"),
    Mistake("dim_l_split", _dim_l, "communication"),
    Mistake("dims_of_one_layer", _dims_of_one_layer, "communication"),
    Mistake("largest_dim_split", _largest_dim, "communication"),
)
