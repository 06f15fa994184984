"""Wrong answers that a program makes of an exercise's own library function and oracle.

Each is right in all that the cases of a stub show, and wrong in one way that a contract must see.
`python -m tests.contracts.mutants` shows how many of them each contract rejects.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar.contracts.base import Contract, PropertyName, with_drawn
from jaxpar.contracts.case import Case, Made, array_leaves
from jaxpar.course.catalog import EXERCISES
from jaxpar.grading.in_process import SEED, InProcessPool, judged
from jaxpar.mesh import local_shape, parse_layout, simulate_devices, vary, varying_axes

Answer = Callable[..., Any]
Mutant = tuple[str, Answer, tuple[PropertyName, ...]]
"""A name, the wrong answer, and the properties by one of which it must fail."""

FLOAT32_INSIDE = (
    "adam8bit_update",  # its docstring promises moves in float32
    "flash_attention",  # sends nothing, and its docstring promises softmax and sums in float32
    "frugal_layers",  # as remat_layers, below
    "clip_gradients",  # its docstring promises squares and sums in float32
    "global_norm_of_shards",  # its docstring promises squares and sums in float32
    "masked_mean",  # sends two numbers, which may be float32, and promises the dtype of the result
    "prune_2_4",  # sends nothing, and what it compares is the same in float32
    "quantized_all_reduce",  # its docstring promises float32, in which errors are kept
    "top_k_all_reduce",  # as quantized_all_reduce
    "mixed_precision_step",  # its parameters are float32, and the dtype of its products is judged
    "remat_layers",  # sends nothing, and layer_fn decides in which dtype it computes
    "route",  # its docstring promises float32
    "sample_parallel",  # its docstring promises float32
    "vocab_parallel_distillation_loss",  # its docstring promises float32
)
ONE_DTYPE = (
    "adam8bit_update",  # its moves are float32, and so are the floats of its state
    "bucketed_all_reduce",  # its docstring says that all leaves have the same dtype
    "mixed_precision_step",  # its parameters and their state are float32
)
"""A pytree that these return has one dtype."""
HOLDS_ARRAYS = ("parameter_server_step",)
"""Here a function that an answer is given holds arrays of one device: no mutant can gather them."""
WIDE = ("communication", "memory", "flops", "sharding")


def mutants(contract: Contract) -> Iterator[Mutant]:
    """All mutants that an exercise can have; `contract` has its drawn cases."""
    if contract.kind == "program":
        yield from _programs(contract)
    elif contract.kind == "specs":
        yield "fitted_to_the_stub", _fitted(contract), ("values",)
    else:
        yield from _of_plain_arguments(contract)


def _programs(contract: Contract) -> Iterator[Mutant]:
    yield "fitted_to_the_stub", _fitted(contract), ("values",)
    if any(1 in _axis_sizes(case) for case in contract.cases):
        yield "refuses_one_device", _refuses_one_device(contract), ("values",)
    dtypes = {leaf.dtype for case in contract.cases for _, leaf in case.arrays()}
    if dtypes & {"bfloat16", "int32"} and contract.id not in FLOAT32_INSIDE:
        yield "in_float32", _in_float32(contract), ("values", *WIDE)
    if _returns_a_tree(contract) and contract.id not in ONE_DTYPE:
        yield "of_one_dtype", _of_one_dtype(contract), ("values",)
    if any(map(_is_split, contract.cases)):
        yield "gathers_first", _gathers_first(contract), WIDE
        if contract.id not in HOLDS_ARRAYS:
            yield "whole_then_sliced", _whole_then_sliced(contract), WIDE


def _fitted(contract: Contract) -> Answer:
    """Knows the cases of the stub by heart."""

    @wraps(contract.reference)
    def answer(*args: Any, **kwargs: Any) -> Any:
        case = _case_of(contract.cases, args, kwargs)
        if case is not None and case not in contract.visible:  # bad calls are refused all the same
            raise KeyError("another case")
        return contract.reference(*args, **kwargs)

    return answer


def _refuses_one_device(contract: Contract) -> Answer:
    @wraps(contract.reference)
    def answer(*args: Any, **kwargs: Any) -> Any:
        case = _case_of(contract.cases, args, kwargs)
        if case is not None and 1 in _axis_sizes(case):
            raise ValueError("one device")
        return contract.reference(*args, **kwargs)

    return answer


def _in_float32(contract: Contract) -> Answer:
    """Computes and sends everything in float32, and converts only the result."""

    @wraps(contract.reference)
    def answer(*args: Any, **kwargs: Any) -> Any:
        right = jax.eval_shape(lambda: contract.reference(*args, **kwargs))
        results = contract.reference(*jax.tree.map(_to_float32, args), **kwargs)
        return jax.tree.map(lambda y, like: y.astype(like.dtype), results, right)

    return answer


def _returns_a_tree(contract: Contract) -> bool:
    return "PyTree" in str(inspect.signature(contract.reference).return_annotation)


def _of_one_dtype(contract: Contract) -> Answer:
    """Returns all floats in one dtype, which parts of one array of all of them have."""

    @wraps(contract.reference)
    def answer(*args: Any, **kwargs: Any) -> Any:
        results = contract.reference(*args, **kwargs)
        dtype = jnp.result_type(*filter(_is_float, jax.tree.leaves(results)))
        return jax.tree.map(lambda y: y.astype(dtype) if _is_float(y) else y, results)

    return answer


def _gathers_first(contract: Contract) -> Answer:
    """Gathers whatever is split over the axis, and takes its own part again."""

    @wraps(contract.reference)
    def answer(*args: Any, **kwargs: Any) -> Any:
        def gathered(x: Any) -> Any:
            for axis in _axes_in(kwargs):
                if isinstance(x, jax.Array) and axis in varying_axes(x):
                    x = lax.all_gather(x, axis)[lax.axis_index(axis)]
            return x

        return contract.reference(*jax.tree.map(gathered, args), **kwargs)

    return answer


def _whole_then_sliced(contract: Contract) -> Answer:
    """Gathers all arrays, computes everything on every device, and takes its own part."""

    @wraps(contract.reference)
    def answer(*args: Any, **kwargs: Any) -> Any:
        case = _case_of(contract.cases, args, kwargs)
        if case is None:
            return contract.reference(*args, **kwargs)
        like, tree = jax.tree.flatten(jax.eval_shape(lambda: contract.reference(*args, **kwargs)))
        whole = [
            _whole(argument, spec, case)
            for argument, spec in zip(args, case.args.values(), strict=True)
        ]
        results = []
        for expected, model in zip(contract.oracle(case, *whole), like, strict=True):
            own = jnp.asarray(expected.blocks)
            for axis in case.sizes:
                own = lax.dynamic_index_in_dim(own, lax.axis_index(axis), 0, keepdims=False)
            results.append(own.astype(model.dtype))
        return jax.tree.unflatten(tree, results)

    return answer


def _of_plain_arguments(contract: Contract) -> Iterator[Mutant]:
    """Answers that forget an argument, or know it up to half of what is usually drawn."""
    fails: tuple[PropertyName, ...] = ("values", "order")
    if contract.challenge:  # any order will do, so what is forgotten shows in what a table costs
        fails += ("bubble", "in_flight")
    for name in inspect.signature(contract.reference).parameters:
        drawn = [_drawn(contract, name, seed) for seed in range(20)]
        first = drawn[0][0]
        if any(value != first for values in drawn for value in values):
            yield f"forgets_{name}", _with_argument(contract, name, lambda v, f=first: f), fails
        numbers = [[v for v in values if type(v) in (int, float)] for values in drawn]
        half = float(np.median([max(found, default=0) for found in numbers])) / 2
        if half >= 1:
            limited = _with_argument(contract, name, lambda v, h=half: _at_most(v, h))
            yield f"knows_{name}_up_to_half", limited, fails
    if contract.kind == "value":
        yield "in_float32", _rounded(contract), fails


def _drawn(contract: Contract, name: str, seed: int) -> list[Any]:
    """The values of an argument in all calls that a seed draws."""
    assert contract.values is not None
    signature = inspect.signature(contract.reference)
    found = []
    for args, kwargs in contract.values(np.random.default_rng(seed)):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        found.append(bound.arguments[name])
    return found


def _with_argument(contract: Contract, name: str, change: Callable[[Any], Any]) -> Answer:
    """Answers for another value of one argument; bad arguments are refused all the same."""
    signature = inspect.signature(contract.reference)

    @wraps(contract.reference)
    def answer(*args: Any, **kwargs: Any) -> Any:
        contract.reference(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        bound.arguments[name] = change(bound.arguments[name])
        return contract.reference(*bound.args, **bound.kwargs)

    return answer


def _at_most(value: Any, limit: float) -> Any:
    return min(value, type(value)(limit)) if type(value) in (int, float) else value


def _rounded(contract: Contract) -> Answer:
    """Computes in the precision of float32."""

    @wraps(contract.reference)
    def answer(*args: Any, **kwargs: Any) -> Any:
        def rounded(value: Any) -> Any:
            return float(np.float32(value)) if type(value) in (int, float) else value

        return jax.tree.map(rounded, contract.reference(*args, **kwargs))

    return answer


def _case_of(cases: tuple[Case, ...], args: tuple, kwargs: dict[str, Any]) -> Case | None:
    """The case that an answer is called in: by its mesh, its plain arguments and its shapes."""
    mesh = jax.sharding.get_abstract_mesh()
    for case in cases:
        sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True)) if mesh.shape else None
        plain = {k: v for k, v in case.kwargs.items() if isinstance(v, str | int | float)}
        shapes = [
            local_shape(leaf.shape, leaf.layout, case.sizes) if sizes else leaf.shape
            for spec in case.args.values()
            if not isinstance(spec, Made)  # a function may keep its arrays to itself
            for leaf in array_leaves(spec)
        ]
        given = [x.shape for x in jax.tree.leaves(args) if hasattr(x, "shape")]
        if (
            (sizes is None or sizes == case.sizes)
            and all(kwargs.get(k) == v for k, v in plain.items())
            and Counter(shapes) <= Counter(given)  # what is made may be more arrays
        ):
            return case
    return None


def _axes_in(kwargs: dict[str, Any]) -> list[str]:
    """The mesh axes that arguments name."""
    names = jax.sharding.get_abstract_mesh().axis_names
    return [value for value in kwargs.values() if isinstance(value, str) and value in names]


def _axis_sizes(case: Case) -> list[int]:
    return [case.sizes[v] for v in case.kwargs.values() if isinstance(v, str) and v in case.sizes]


def _is_split(case: Case) -> bool:
    """Whether an array is split over an axis that an argument names."""
    named = {v for v in case.kwargs.values() if isinstance(v, str)}
    return any(
        named & set(axes) for _, leaf in case.arrays() for _, axes in parse_layout(leaf.layout)
    )


def _is_float(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _to_float32(x: Any) -> Any:
    return x.astype(jnp.float32) if isinstance(x, jax.Array) and x.dtype != bool else x


def _whole(argument: Any, spec: Any, case: Case) -> Any:
    """An argument with its arrays whole, and typed as varying: no gradient of them is summed."""
    layouts = [leaf.layout for leaf in array_leaves(spec)]
    leaves, tree = jax.tree.flatten(argument)
    if len(layouts) != len(leaves):  # a function, or the state of an optimizer
        return argument
    return jax.tree.unflatten(
        tree, [_gathered(x, at, case) for x, at in zip(leaves, layouts, strict=True)]
    )


def _gathered(x: jax.Array, layout: str, case: Case) -> jax.Array:
    x = jnp.atleast_1d(x) if layout else x  # a number that each device has of its own
    for dim, (_, axes) in enumerate(parse_layout(layout)):
        for axis in reversed(axes):
            x = lax.all_gather(x, axis, axis=dim, tiled=True)
    if _is_float(x):
        x = x.astype(jnp.float32)  # as precise as a mutant must be whose values are right
    return vary(x, case.sizes)


def main() -> None:
    """Shows for each exercise how many mutants it has, and which of them pass."""
    simulate_devices(12)
    for row in EXERCISES:
        pool, passed = InProcessPool(row.where), []
        found = list(mutants(with_drawn(row.where, SEED)))
        for name, mutant, fails in found:
            failure = judged(mutant, pool).first_failure()
            if failure is None or failure.name not in fails:
                passed.append(f"{name} ({failure.message if failure else 'passes'})")
        rejected = f"{len(found) - len(passed)} of {len(found)} rejected"
        print(f"{row.id:32} {rejected}", *passed, sep="; ", flush=True)


if __name__ == "__main__":
    main()
