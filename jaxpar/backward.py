"""The gradient of a stack of layers, taken when the caller wants it, at once or in two halves.

`forward` keeps arrays layer by layer, which can be stored. `backward` makes the gradients of them;
or `input_gradient` makes what others wait for, and `weight_gradient` the rest, later.

Halves are found in the program that JAX makes for the backward pass: what the gradient of the input
needs is the first half, all else the second. Both together compute what `backward` computes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import Array, lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal
from jaxtyping import PyTree

LayerFn = Callable[[Any, Array], Array]
Kept = list[Array]
"""What a stack keeps for its gradient, beside parameters: each array is [l, ...]."""

# Equations that stand for others, which halves may have to take apart.
_CALLS = ("jit", "remat2")


def forward(layer_fn: LayerFn, params: PyTree[Array], x: Array) -> tuple[Array, Kept]:
    """Layer after layer, and what their gradients need; `params` are stacked, [l, ...].

    Comm:
        forward: nothing
        backward: nothing
    Memory: x+l*kept
    Source: Griewank and Walther 2008 (Evaluating Derivatives), section 3.2 (reverse mode)
    """

    def body(x: Array, layer: PyTree[Array]) -> tuple[Array, Kept]:
        y, pull = jax.vjp(layer_fn, layer, x)
        return y, [leaf for leaf in jax.tree.leaves(pull) if not _is_one_of(leaf, layer)]

    return lax.scan(body, x, params)


def backward(
    layer_fn: LayerFn, params: PyTree[Array], kept: Kept, dy: Array
) -> tuple[Array, PyTree[Array]]:
    """The gradients of the stack's input and of its parameters, by that of its output.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: x+params
    Source: Griewank and Walther 2008 (Evaluating Derivatives), section 3.2 (reverse mode)
    """

    def body(dy: Array, given: tuple) -> tuple[Array, PyTree[Array]]:
        layer, kept = given
        return _gradients(layer_fn, layer, kept, dy)

    return lax.scan(body, dy, (params, kept), reverse=True)


def input_gradient(
    layer_fn: LayerFn, params: PyTree[Array], kept: Kept, dy: Array
) -> tuple[Array, Kept]:
    """The gradient of the stack's input alone, and what `weight_gradient` will need of it.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: x+l*halves
    Source: Qi et al. 2023 (Zero Bubble Pipeline Parallelism), section 2
    """

    def body(dy: Array, given: tuple) -> tuple[Array, Kept]:
        layer, kept = given
        return _Halves(layer_fn, layer, kept, dy).first(layer, kept, dy)

    return lax.scan(body, dy, (params, kept), reverse=True)


def weight_gradient(
    layer_fn: LayerFn, params: PyTree[Array], kept: Kept, halves: Kept, dy_like: Array
) -> PyTree[Array]:
    """The gradient of the parameters; of `dy_like` the shape and the type count.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: params
    Source: Qi et al. 2023 (Zero Bubble Pipeline Parallelism), section 2
    """

    def body(_: None, given: tuple) -> tuple[None, PyTree[Array]]:
        layer, kept, found = given
        return None, _Halves(layer_fn, layer, kept, dy_like).second(layer, kept, found)

    return lax.scan(body, None, (params, kept, halves))[1]


def _gradients(
    layer_fn: LayerFn, layer: PyTree[Array], kept: Kept, dy: Array
) -> tuple[Array, PyTree[Array]]:
    """Of one layer's input, and of its parameters."""
    # Traced for its structure: what it computes is not used, so the compiler drops it.
    _, pull = jax.vjp(layer_fn, layer, dy)
    leaves, structure = jax.tree.flatten(pull)
    stored = iter(kept)
    leaves = [leaf if _is_one_of(leaf, layer) else next(stored) for leaf in leaves]
    parameters, x = structure.unflatten(leaves)(dy)
    return x, parameters


def _is_one_of(leaf: Array, tree: PyTree[Array]) -> bool:
    return any(leaf is other for other in jax.tree.leaves(tree))


class _Step(NamedTuple):
    """An equation of the backward pass; its variables are those of the whole, calls opened."""

    equation: JaxprEqn
    takes: tuple[Any, ...]
    gives: tuple[Any, ...]


class _Halves:
    """The backward pass of one layer, in two halves."""

    def __init__(self, layer_fn: LayerFn, layer: PyTree[Array], kept: Kept, dy: Array) -> None:
        given, structure = jax.tree.flatten((layer, kept, dy))

        def flat(*leaves: Array) -> tuple[Array, list[Array]]:
            x, parameters = _gradients(layer_fn, *structure.unflatten(leaves))
            return x, jax.tree.leaves(parameters)

        closed = jax.make_jaxpr(flat)(*given)
        self._arguments = closed.jaxpr.invars
        self._constants = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        names: dict[Any, Any] = {v: v for v in (*self._arguments, *self._constants)}
        steps = self._open(closed.jaxpr, names)
        self._x, *self._parameters = (self._name(names, v) for v in closed.jaxpr.outvars)
        self._structure = jax.tree.structure(layer)
        self._first, rest = _needed(steps, [self._x])
        self._second, _ = _needed(rest, self._parameters)
        used = {v for step in self._second for v in step.takes} | {*self._parameters}
        made = [v for step in self._first for v in step.gives]
        self._crossing = [v for v in (*made, self._arguments[-1]) if v in used]

    def _open(self, jaxpr: Jaxpr, names: dict[Any, Any]) -> list[_Step]:
        """The equations, with those of calls in their place; `names` gets what variables are."""
        steps = []
        for equation in jaxpr.eqns:
            takes = tuple(self._name(names, v) for v in equation.invars)
            inner = equation.params.get("jaxpr") if equation.primitive.name in _CALLS else None
            inner = getattr(inner, "jaxpr", inner)
            if inner is None or inner.constvars:
                names |= {v: object() for v in equation.outvars}
                steps.append(_Step(equation, takes, tuple(names[v] for v in equation.outvars)))
            else:
                own = dict(zip(inner.invars, takes, strict=True))
                steps += self._open(inner, own)
                results = [self._name(own, v) for v in inner.outvars]
                names |= dict(zip(equation.outvars, results, strict=True))
        return steps

    def _name(self, names: dict[Any, Any], v: Any) -> Any:
        if isinstance(v, Literal):
            name = object()
            self._constants[name] = v.val
            return name
        return names[v]

    def first(self, layer: PyTree[Array], kept: Kept, dy: Array) -> tuple[Array, Kept]:
        given = zip(self._arguments, jax.tree.leaves((layer, kept, dy)), strict=True)
        values = _run(self._first, self._constants | dict(given))
        return values[self._x], [values[v] for v in self._crossing]

    def second(self, layer: PyTree[Array], kept: Kept, found: Kept) -> PyTree[Array]:
        given = zip(self._arguments, jax.tree.leaves((layer, kept)), strict=False)
        crossing = zip(self._crossing, found, strict=True)
        values = _run(self._second, self._constants | dict(given) | dict(crossing))
        return self._structure.unflatten(values[v] for v in self._parameters)


def _needed(steps: Sequence[_Step], results: Sequence[Any]) -> tuple[list[_Step], list[_Step]]:
    """The steps that lead to the results, and the others."""
    wanted, found, others = set(results), [], []
    for step in reversed(steps):
        needed = not wanted.isdisjoint(step.gives)
        wanted.update(step.takes if needed else ())
        (found if needed else others).append(step)
    return found[::-1], others[::-1]


def _run(steps: Sequence[_Step], values: dict[Any, Any]) -> dict[Any, Any]:
    for equation, takes, gives in steps:
        primitive = equation.primitive
        arguments = primitive.get_bind_params(equation.params)
        with equation.ctx.manager:
            made = primitive.bind(*(values[v] for v in takes), **arguments)
        values |= dict(zip(gives, made if primitive.multiple_results else [made], strict=True))
    return values
