"""The forward and the backward pass of a stack of layers, as separate calls.

`forward` returns residuals, the arrays that the backward pass needs, so that they can be stored.
`backward` computes both gradients from them. Or the backward pass runs in two halves:
`input_gradient` computes the gradient that other devices wait for, and `weight_gradient` computes
the rest later.

The halves are found in the jaxpr of the backward pass: the first half is all that the gradient with
respect to the input needs, and the second half is everything else. Together they compute exactly
what `backward` computes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import Array, lax
from jax.extend.core import Jaxpr, JaxprEqn, Literal
from jaxtyping import PyTree

LayerFn = Callable[..., Array]
"""(a layer's parameters, x, *its frozen parameters) -> the next x."""
Residuals = list[Array]
"""What a stack keeps for its backward pass, apart from the parameters: each array is [l, ...]."""

# Equations that call a jaxpr of their own, whose equations may belong to different halves.
_CALLS = ("jit", "remat2")


def forward(
    layer_fn: LayerFn, params: PyTree[Array], x: Array, *frozen: PyTree[Array]
) -> tuple[Array, Residuals]:
    """Applies layer after layer, and returns the residuals too.

    `params` are stacked, [l, ...], and so are `frozen`: more parameters, which have no gradients.

    Comm:
        forward: nothing
        backward: nothing
    Memory: x+l*residuals
    Source: Griewank and Walther 2008 (Evaluating Derivatives), section 3.2 (reverse mode)
    """

    def body(x: Array, given: tuple) -> tuple[Array, Residuals]:
        layer, *frozen = given
        y, vjp = jax.vjp(lambda layer, x: layer_fn(layer, x, *frozen), layer, x)
        return y, [leaf for leaf in jax.tree.leaves(vjp) if not _is_leaf_of(given, leaf)]

    return lax.scan(body, x, (params, *frozen))


def backward(
    layer_fn: LayerFn,
    params: PyTree[Array],
    residuals: Residuals,
    dy: Array,
    *frozen: PyTree[Array],
) -> tuple[Array, PyTree[Array]]:
    """The gradients with respect to the stack's input and to its parameters, from `dy`.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: x+params
    Source: Griewank and Walther 2008 (Evaluating Derivatives), section 3.2 (reverse mode)
    """

    def body(dy: Array, given: tuple) -> tuple[Array, PyTree[Array]]:
        layer, residuals, *frozen = given
        return _layer_gradients(layer_fn, layer, residuals, dy, *frozen)

    return lax.scan(body, dy, (params, residuals, *frozen), reverse=True)


def input_gradient(
    layer_fn: LayerFn,
    params: PyTree[Array],
    residuals: Residuals,
    dy: Array,
    *frozen: PyTree[Array],
) -> tuple[Array, Residuals]:
    """The gradient with respect to the stack's input, and what `weight_gradient` needs besides.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: x+l*halves
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2
    """

    def body(dy: Array, given: tuple) -> tuple[Array, Residuals]:
        layer, residuals, *frozen = given
        halves = _SplitBackward(layer_fn, layer, residuals, dy, *frozen)
        return halves.first(layer, residuals, dy, *frozen)

    return lax.scan(body, dy, (params, residuals, *frozen), reverse=True)


def weight_gradient(
    layer_fn: LayerFn,
    params: PyTree[Array],
    residuals: Residuals,
    halves: Residuals,
    dy_like: Array,
    *frozen: PyTree[Array],
) -> PyTree[Array]:
    """The gradient with respect to the parameters, from what `input_gradient` returned.

    Only the shape and the type of `dy_like` are used.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: params
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2
    """

    def body(_: None, given: tuple) -> tuple[None, PyTree[Array]]:
        layer, residuals, crossing, *frozen = given
        halves = _SplitBackward(layer_fn, layer, residuals, dy_like, *frozen)
        return None, halves.second(layer, residuals, crossing, *frozen)

    return lax.scan(body, None, (params, residuals, halves, *frozen))[1]


def _layer_gradients(
    layer_fn: LayerFn,
    layer: PyTree[Array],
    residuals: Residuals,
    dy: Array,
    *frozen: PyTree[Array],
) -> tuple[Array, PyTree[Array]]:
    """The gradients with respect to one layer's input and to its parameters."""
    # Traced only for the structure of the vjp; the compiler drops this forward pass as unused.
    _, vjp = jax.vjp(lambda layer, x: layer_fn(layer, x, *frozen), layer, dy)
    leaves, structure = jax.tree.flatten(vjp)
    stored, given = iter(residuals), (layer, *frozen)
    leaves = [leaf if _is_leaf_of(given, leaf) else next(stored) for leaf in leaves]
    layer_gradient, x_gradient = structure.unflatten(leaves)(dy)
    return x_gradient, layer_gradient


def _is_leaf_of(tree: PyTree[Array], array: Array) -> bool:
    return any(array is leaf for leaf in jax.tree.leaves(tree))


class _Step(NamedTuple):
    """An equation of the backward pass, with the global names of its inputs and outputs."""

    equation: JaxprEqn
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


class _SplitBackward:
    """The backward pass of one layer as two lists of steps.

    The first list computes the gradient with respect to the layer's input, and the second list the
    gradients with respect to its parameters. Calls are inlined, so that a call may contribute steps
    to both. Every variable of the flat program has a name, which is any hashable object.
    """

    def __init__(
        self,
        layer_fn: LayerFn,
        layer: PyTree[Array],
        residuals: Residuals,
        dy: Array,
        *frozen: PyTree[Array],
    ) -> None:
        arguments, structure = jax.tree.flatten((layer, residuals, frozen, dy))

        def flat(*leaves: Array) -> tuple[Array, list[Array]]:
            layer, residuals, frozen, dy = structure.unflatten(leaves)
            x_gradient, layer_gradient = _layer_gradients(layer_fn, layer, residuals, dy, *frozen)
            return x_gradient, jax.tree.leaves(layer_gradient)

        closed = jax.make_jaxpr(flat)(*arguments)
        self._arguments = closed.jaxpr.invars
        self._constants = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        names: dict[Any, Any] = {v: v for v in (*self._arguments, *self._constants)}
        steps = self._inline(closed.jaxpr, names)
        self._x_gradient, *self._layer_gradient = (
            self._name(names, v) for v in closed.jaxpr.outvars
        )
        self._structure = jax.tree.structure(layer)
        self._first, rest = _partition(steps, [self._x_gradient])
        self._second, _ = _partition(rest, self._layer_gradient)
        used = {name for step in self._second for name in step.inputs} | {*self._layer_gradient}
        computed = [name for step in self._first for name in step.outputs]
        dy_name = self._arguments[-1]
        # The results of the first half that the second half needs; they are stored in between.
        self._crossing = [name for name in (*computed, dy_name) if name in used]

    def _inline(self, jaxpr: Jaxpr, names: dict[Any, Any]) -> list[_Step]:
        """The equations of a jaxpr, calls replaced by their own; adds its variables to `names`."""
        steps = []
        for equation in jaxpr.eqns:
            inputs = tuple(self._name(names, v) for v in equation.invars)
            inner = equation.params.get("jaxpr") if equation.primitive.name in _CALLS else None
            inner = getattr(inner, "jaxpr", inner)
            if inner is None or inner.constvars:
                names |= {v: object() for v in equation.outvars}
                steps.append(_Step(equation, inputs, tuple(names[v] for v in equation.outvars)))
            else:
                inner_names = dict(zip(inner.invars, inputs, strict=True))
                steps += self._inline(inner, inner_names)
                results = [self._name(inner_names, v) for v in inner.outvars]
                names |= dict(zip(equation.outvars, results, strict=True))
        return steps

    def _name(self, names: dict[Any, Any], variable: Any) -> Any:
        if isinstance(variable, Literal):
            name = object()
            self._constants[name] = variable.val
            return name
        return names[variable]

    def first(
        self, layer: PyTree[Array], residuals: Residuals, dy: Array, *frozen: PyTree[Array]
    ) -> tuple[Array, Residuals]:
        """The gradient with respect to the input, and what `second` needs of this half."""
        given = jax.tree.leaves((layer, residuals, frozen, dy))
        arguments = zip(self._arguments, given, strict=True)
        values = _evaluate(self._first, self._constants | dict(arguments))
        return values[self._x_gradient], [values[name] for name in self._crossing]

    def second(
        self,
        layer: PyTree[Array],
        residuals: Residuals,
        crossing: Residuals,
        *frozen: PyTree[Array],
    ) -> PyTree[Array]:
        """The gradients with respect to the parameters."""
        given = jax.tree.leaves((layer, residuals, frozen))
        arguments = zip(self._arguments[:-1], given, strict=True)
        crossed = zip(self._crossing, crossing, strict=True)
        values = _evaluate(self._second, self._constants | dict(arguments) | dict(crossed))
        return self._structure.unflatten(values[name] for name in self._layer_gradient)


def _partition(steps: Sequence[_Step], results: Sequence[Any]) -> tuple[list[_Step], list[_Step]]:
    """Partitions the steps into those that the results depend on, and the others."""
    wanted, needed, others = set(results), [], []
    for step in reversed(steps):
        if wanted.isdisjoint(step.outputs):
            others.append(step)
        else:
            wanted.update(step.inputs)
            needed.append(step)
    return needed[::-1], others[::-1]


def _evaluate(steps: Sequence[_Step], values: dict[Any, Any]) -> dict[Any, Any]:
    """Runs the steps in order, and adds what they compute to `values`."""
    for equation, inputs, outputs in steps:
        primitive = equation.primitive
        params = primitive.get_bind_params(equation.params)
        with equation.ctx.manager:
            results = primitive.bind(*(values[name] for name in inputs), **params)
        if not primitive.multiple_results:
            results = [results]
        values |= dict(zip(outputs, results, strict=True))
    return values
