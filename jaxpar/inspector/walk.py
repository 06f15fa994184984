"""A program's operations as a run meets them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jaxpar.inspector.loops import trip_count
from jaxpar.inspector.mlir import ir, symbol

MAX_OPERATIONS = 1_000_000
MAX_DEPTH = 100
_CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
_BRANCHES = ("stablehlo.case", "stablehlo.if")
_MANUAL = "sdy.manual_computation"


@dataclass(frozen=True)
class Site:
    """An operation where a run meets it: a function's body appears once for every call.

    Attributes:
        op: The operation.
        times: How often it runs in one run of the program; None if that is not known.
        conditional: Whether a branch stands around it.
        per_element: Whether it is in the body of a reduction, a sort or the like.
        manual: The nearest `sdy.manual_computation` around it.
        calls: The functions entered to reach it.
    """

    op: ir.Operation
    times: int | None = 1
    conditional: bool = False
    per_element: bool = False
    manual: ir.Operation | None = None
    calls: tuple[str, ...] = ("main",)


def walk(module: ir.Module) -> Iterator[Site]:
    """Yields what `main` runs, in order, each call followed by the body of what it calls.

    Args:
        module: StableHLO, as `jax.export` or `.lower()` give it.

    Raises:
        ValueError: There is no main, a function calls itself or does not exist, or the program
            exceeds MAX_OPERATIONS (calls expanded) or MAX_DEPTH (of regions and calls).
    """
    functions = {
        ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
        for op in module.body
        if op.operation.name == "func.func"
    }
    seen = 0

    def visit(region: ir.Region, around: Site, depth: int) -> Iterator[Site]:
        nonlocal seen
        for block in region:
            for op in block:
                seen += 1
                if seen > MAX_OPERATIONS or depth > MAX_DEPTH:
                    raise ValueError(
                        f"inspector.walk: over {MAX_OPERATIONS} operations with calls expanded, "
                        f"or over {MAX_DEPTH} levels of nesting; write loops, or fewer calls"
                    )
                site = replace(around, op=op.operation)
                yield site
                for inner, circumstances in _inside(site, functions):
                    yield from visit(inner, circumstances, depth + 1)

    main = _function("main", functions)
    yield from visit(main.regions[0], Site(main), 0)


def _function(name: str, functions: dict[str, ir.Operation]) -> ir.Operation:
    if name not in functions:
        raise ValueError(f"inspector.walk: the program has no function {name!r}; export it again")
    return functions[name]


def _inside(site: Site, functions: dict[str, ir.Operation]) -> Iterator[tuple[ir.Region, Site]]:
    """The regions that running an operation runs, each with its circumstances."""
    op = site.op
    if op.name in _CALLS:
        name = symbol(op, _CALLS[op.name])
        if name in site.calls:
            raise ValueError(f"inspector.walk: function {name!r} calls itself; use a loop")
        yield _function(name, functions).regions[0], replace(site, calls=(*site.calls, name))
    elif op.name == "stablehlo.while":
        trips = trip_count(op)
        checks = None if trips is None else trips + 1
        for region, runs in zip(op.regions, (checks, trips), strict=True):
            yield region, replace(site, times=_product(site.times, runs))
    elif op.name in _BRANCHES:
        yield from ((region, replace(site, conditional=True)) for region in op.regions)
    elif op.name == _MANUAL:
        yield op.regions[0], replace(site, manual=op)
    else:
        yield from ((region, replace(site, per_element=True)) for region in op.regions)


def _product(times: int | None, runs: int | None) -> int | None:
    return None if times is None or runs is None else times * runs
