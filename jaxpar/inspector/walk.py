"""Walks through the operations of a StableHLO program in the order in which a run reaches them."""

from collections import Counter
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
    """An operation as a run reaches it; the body of a function is reached once for every call.

    Attributes:
        op: The operation.
        times: How often it runs in one run of the program; None if that is not known.
        branches: The conditionals that it is inside of, outermost first: each by its number among
            those that are equally deep inside the same ones, in the order of the program.
        per_element: Whether it is in the body of a reduction, a sort or the like.
        manual: The innermost `sdy.manual_computation` around it.
        calls: The functions that were entered to reach it.
    """

    op: ir.Operation
    times: int | None = 1
    branches: tuple[int, ...] = ()
    per_element: bool = False
    manual: ir.Operation | None = None
    calls: tuple[str, ...] = ("main",)


def walk(module: ir.Module) -> Iterator[Site]:
    """Yields the operations that `main` runs, in order; a call is followed by the called body.

    Raises:
        ValueError: There is no main, a function calls itself or does not exist, or the program
            exceeds MAX_OPERATIONS (calls expanded) or MAX_DEPTH (of regions and calls).
    """
    check_size(module)
    functions = functions_of(module)
    conditionals: Counter[tuple[int, ...]] = Counter()

    def visit(region: ir.Region, around: Site) -> Iterator[Site]:
        for block in region:
            for op in block:
                site = replace(around, op=op.operation)
                yield site
                if site.op.name in _BRANCHES:
                    number = conditionals[site.branches]
                    conditionals[site.branches] += 1
                    site = replace(site, branches=(*site.branches, number))
                for inner, inner_site in _inner_regions(site, functions):
                    yield from visit(inner, inner_site)

    main = functions["main"]
    yield from visit(main.regions[0], Site(main))


def check_size(module: ir.Module) -> None:
    """Checks that a program is small enough to be walked; it reads each function only once.

    Raises:
        ValueError: As for `walk`.
    """
    functions = functions_of(module)
    known: dict[str, tuple[int, int]] = {}

    def measure(region: ir.Region, calls: tuple[str, ...], depth: int) -> tuple[int, int]:
        """The number of operations that a run of the region reaches, and its levels of nesting."""
        _check_limit(depth, MAX_DEPTH)
        count = levels = 0
        for op in (op.operation for block in region for op in block):
            count += 1
            name = _called(op, calls)
            if name in known:
                parts = [known[name]]
            elif name is not None:
                body = _function(name, functions).regions[0]
                parts = [known.setdefault(name, measure(body, (*calls, name), depth + 1))]
            else:
                parts = [measure(inner, calls, depth + 1) for inner in op.regions]
            for operations, below in parts:
                count, levels = count + operations, max(levels, below + 1)
        _check_limit(depth + levels, MAX_DEPTH)
        return count, levels

    count, _ = measure(_function("main", functions).regions[0], ("main",), 0)
    _check_limit(count, MAX_OPERATIONS)


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(
            f"inspector.walk: over {MAX_OPERATIONS} operations with calls expanded, "
            f"or over {MAX_DEPTH} levels of nesting; write loops, or fewer calls"
        )


def functions_of(module: ir.Module) -> dict[str, ir.Operation]:
    """Returns the functions of a module by name."""
    return {
        ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
        for op in module.body
        if op.operation.name == "func.func"
    }


def _function(name: str, functions: dict[str, ir.Operation]) -> ir.Operation:
    if name not in functions:
        raise ValueError(f"inspector.walk: the program has no function {name!r}; export it again")
    return functions[name]


def called(op: ir.Operation) -> str | None:
    """Returns the name of the function that an operation calls, if it calls one."""
    return symbol(op, _CALLS[op.name]) if op.name in _CALLS else None


def _called(op: ir.Operation, calls: tuple[str, ...]) -> str | None:
    """The function that an operation calls, if any; `calls` are those that are already running."""
    name = called(op)
    if name in calls:
        raise ValueError(f"inspector.walk: function {name!r} calls itself; use a loop")
    return name


def _inner_regions(
    site: Site, functions: dict[str, ir.Operation]
) -> Iterator[tuple[ir.Region, Site]]:
    """The regions that an operation runs, each with the site of what is inside."""
    op = site.op
    if name := _called(op, site.calls):
        yield functions[name].regions[0], replace(site, calls=(*site.calls, name))
    elif op.name == "stablehlo.while":
        trips = trip_count(op)
        checks = None if trips is None else trips + 1
        for region, runs in zip(op.regions, (checks, trips), strict=True):
            yield region, replace(site, times=_product(site.times, runs))
    elif op.name in _BRANCHES:
        yield from ((region, site) for region in op.regions)
    elif op.name == _MANUAL:
        yield op.regions[0], replace(site, manual=op)
    else:
        yield from ((region, replace(site, per_element=True)) for region in op.regions)


def _product(times: int | None, runs: int | None) -> int | None:
    return None if times is None or runs is None else times * runs
