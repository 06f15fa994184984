"""Partition specs as plain data: what an answer returns for a case, and what is wrong there.

The worker turns an answer's specs into plain data, the judge checks these data, and the reader
turns them into JAX's specs again, by which it compiles the contract's program.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.case import Case, fill
from jaxpar.mesh import make_mesh

Specs = Sequence[Sequence[str | Sequence[str] | None]]
"""For each leaf of params an entry for each dim: the axes that split it."""


def returned(function: Callable[..., Any], case: Case) -> Any:
    """The specs that an answer returns for the params of a case; None for another pytree."""
    return _returned(function, case, make_mesh(case.sizes))


def of_ours(function: Callable[..., Any], case: Case) -> Specs:
    """The specs that a function of ours returns, without devices."""
    sizes = case.sizes
    return _returned(function, case, AbstractMesh(tuple(sizes.values()), tuple(sizes)))


def leaves(case: Case) -> dict[str, tuple[int, ...]]:
    """The shape of each leaf, by its place in params."""
    found = jax.tree.leaves_with_path(_params(case))
    return {jax.tree_util.keystr(path): leaf.shape for path, leaf in found}


def to_partition_specs(specs: Specs) -> list[P]:
    """The specs as JAX has them."""
    return [P(*(tuple(e) if isinstance(e, list | tuple) else e for e in spec)) for spec in specs]


def complaint(case: Case, specs: Any) -> str | None:
    """Says which of an answer's specs is none, or does not fit its leaf or the mesh, if any."""
    shapes = leaves(case)
    if not isinstance(specs, list) or len(specs) != len(shapes):
        shown = specs if isinstance(specs, str) else "another pytree than params"
        return f"the result is {shown[:80]}; return a partition spec for each leaf of params"
    for (place, shape), spec in zip(shapes.items(), specs, strict=True):
        wrong = next(_unfit(case.sizes, shape, spec), None)
        if wrong:
            return f"the spec of params{place} {list(shape)} {wrong}"
    return None


def wrongly_split(case: Case, specs: Specs, model: Specs) -> str | None:
    """Says which leaf is not split over the axes over which `model` splits it, if any."""
    axis = case.kwargs["axis"]
    for (place, shape), spec, right in zip(leaves(case).items(), specs, model, strict=True):
        used, required = ([name for e in one for name in _axes(e)] for one in (spec, right))
        if used != required:
            how = f"split over {' and '.join(used)}" if used else "replicated"
            must = f"be split over {axis}" if required else "be replicated"
            return f"params{place} {list(shape)} is {how}; it must {must}"
    return None


def same(specs: Any, other: Specs) -> bool:
    """Whether an answer's specs mean the same as others; a None at the end changes nothing."""
    if not isinstance(specs, list) or not all(isinstance(spec, list) for spec in specs):
        return False
    return _splits(specs) == _splits(other)


def _returned(function: Callable[..., Any], case: Case, mesh: Mesh | AbstractMesh) -> Any:
    params = _params(case)
    takes_mesh = "mesh" in inspect.signature(function).parameters
    result = function(params, **({"mesh": mesh} if takes_mesh else {}), **case.kwargs)
    specs, structure = jax.tree.flatten(result, is_leaf=lambda part: isinstance(part, P))
    if structure != jax.tree.structure(params):
        return None
    return [_plain(spec) for spec in specs]


def _params(case: Case) -> Any:
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in case.arrays()]
    return fill(case.args["params"], iter(shapes))


def _plain(spec: Any) -> Any:
    """Returns a spec as plain data, and for anything else the name of its type."""
    if not isinstance(spec, P):
        return type(spec).__name__
    entries = [list(entry) if isinstance(entry, tuple) else entry for entry in spec]
    return [e if e is None or isinstance(e, str | list) else str(e) for e in entries]


def _unfit(sizes: dict[str, int], shape: tuple[int, ...], spec: Any) -> Iterator[str]:
    """Yields what is wrong with one spec, which comes from the answer and may be anything."""
    if not isinstance(spec, list):
        yield f"is of type {str(spec)[:40]}; it must be a jax.sharding.PartitionSpec"
        return
    if len(spec) > len(shape):
        yield f"has {len(spec)} entries, more than the leaf has dims"
        return
    used: list[str] = []
    for dim, entry in enumerate(spec):
        axes = _axes(entry)
        unknown = [str(a)[:40] for a in axes if not isinstance(a, str) or a not in sizes]
        if unknown:
            yield f"names {unknown[0]}, which is no axis of the mesh"
            return
        n = math.prod(sizes[axis] for axis in axes)
        if shape[dim] % n:
            yield f"splits dim {dim} over {n} devices, which do not divide {shape[dim]}"
        used += axes
    if len(set(used)) < len(used):
        yield "names an axis twice"


def _splits(specs: Specs) -> list[list[tuple[int, list]]]:
    """Returns the dims of each leaf that are split, each with the axes that split it."""
    return [[(dim, _axes(e)) for dim, e in enumerate(spec) if _axes(e)] for spec in specs]


def _axes(entry: Any) -> list:
    """Returns the axes of one entry; an entry that is neither None nor a list is one axis."""
    if entry is None:
        return []
    return entry if isinstance(entry, list) else [entry]
