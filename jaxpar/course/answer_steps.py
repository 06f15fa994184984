"""Steps through an answer, or the library's own: whose parts each collective takes and gives.

This is for exercises that only move the arrays of devices, and add them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import Contract
from jaxpar.course.answer_run import answer_function, only_their_lines
from jaxpar.course.step_diagnosis import diagnosis
from jaxpar.drawing.steps import StepPicture, Steps
from jaxpar.grading.submission import Submission
from jaxpar.mesh import simulate_devices
from jaxpar.stepper import steps, whose_parts

SHAPES: Mapping[str, Callable[..., tuple[int, ...]]] = {
    "mean_over_devices": lambda n: (1,),
    "scatter": lambda n: (n,),
    "gather": lambda n: (1,),
    "all_to_all_by_permutes": lambda n: (n,),
    "swap_layout": lambda n, m: (math.lcm(n, m) // n, math.lcm(n, m) // m),
    "ring_reduce_scatter": lambda n: (n,),
    "two_way_ring_all_gather": lambda n: (1,),
    "tree_broadcast": lambda n: (1,),
    "recursive_doubling_all_reduce": lambda n: (1,),
    "hierarchical_all_reduce": lambda n, m: (m,),
    "reshard_rows_to_columns": lambda n: (1, n),
}
"""The shape of x on a device, by the sizes of the axes, for each exercise that can be drawn."""
ROOT = 1
ELSEWHERE = "the result has parts of the right devices, but not the right chunks of them"
RIGHT = "On this mesh each device returns what it must."


@dataclass(frozen=True)
class Example:
    """A call of an exercise's function that is small enough to be drawn.

    Attributes:
        axes: the sizes of the mesh's axes, by their names.
        shape: the shape of x on one device.
        keywords: the other arguments.
    """

    axes: Mapping[str, int]
    shape: tuple[int, ...]
    keywords: Mapping[str, Any]

    def title(self, id: str) -> str:
        """The call and the mesh, in words."""
        keywords = "".join(f", {name}={value!r}" for name, value in self.keywords.items())
        mesh = ",".join(f"{axis}={size}" for axis, size in self.axes.items())
        return f"{id}(x{keywords}) on mesh {mesh}"

    def parts(self, function: Callable[..., Any]) -> Steps:
        """Whose parts each collective of the function takes and gives.

        Raises:
            ValueError: it does what cannot be drawn.
        """
        x = jax.ShapeDtypeStruct(self.shape, jnp.float32)
        return whose_parts(self._called(function), [x], self.axes)

    def results(self, function: Callable[..., Any]) -> tuple[np.ndarray, ...]:
        """What devices return where all elements of x differ."""
        shape = (*self.axes.values(), *self.shape)
        x = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
        return steps(self._called(function), [x], self.axes).results

    def _called(self, function: Callable[..., Any]) -> Callable[[jax.Array], Any]:
        return lambda x: function(x, **self.keywords)


def example(contract: Contract, devices: int) -> Example:
    """The call of an exercise on this many devices.

    Raises:
        ValueError: the exercise cannot be drawn, or not on so many devices.
    """
    if contract.id not in SHAPES:
        raise ValueError(
            f"step: {contract.id} is none of the exercises that only move arrays between devices "
            f"and add them; give one of {', '.join(SHAPES)}"
        )
    case = contract.cases[0]
    names = [axis for axis in case.sizes if axis in case.kwargs.values()]
    if len(names) == 2 and (devices % 2 or devices < 4):
        raise ValueError(
            f"step: {contract.id} goes over two axes, {' and '.join(names)}, the first of them "
            f"with 2 devices, and --devices is {devices}; use 4, 6 or 8"
        )
    sizes = [devices] if len(names) == 1 else [2, devices // 2]
    keywords = {name: ROOT if name == "root" else value for name, value in case.kwargs.items()}
    drawn = Example(dict(zip(names, sizes, strict=True)), SHAPES[contract.id](*sizes), keywords)
    drawn.results(contract.reference)  # which says what sizes it does not allow
    return drawn


def step_through(
    contract: Contract, submission: Submission | None, devices: int
) -> tuple[StepPicture, str]:
    """Draws the steps of an answer, and says what is wrong with them first.

    Args:
        contract: that of the exercise.
        submission: the learner's file; None for the library's own function.
        devices: the number of devices.

    Raises:
        LearnerError: the learner's code raised an exception.
        ValueError: the exercise, or what the function does, cannot be drawn.
    """
    simulate_devices(1)
    small, reference = example(contract, devices), contract.reference
    function = _of_learner(submission, contract.id) if submission else reference
    run = small.parts(function)
    picture = StepPicture(small.title(contract.id), run, small.axes)
    wrong = diagnosis(run, small.parts(reference), picture.names)
    if not wrong and not _equal(small.results(function), small.results(reference)):
        wrong = ELSEWHERE
    return picture, f"Wrong: {wrong}." if wrong else RIGHT


def _equal(arrays: tuple[np.ndarray, ...], others: tuple[np.ndarray, ...]) -> bool:
    return all(np.allclose(one, other) for one, other in zip(arrays, others, strict=True))


def _of_learner(submission: Submission, id: str) -> Callable[..., list[jax.Array]]:
    """The learner's function, which raises a `LearnerError` with their lines only."""
    function = answer_function(submission, id)

    def guarded(*args: Any, **kwargs: Any) -> list[jax.Array]:
        with only_their_lines(submission.path):
            results = [jnp.asarray(leaf) for leaf in jax.tree.leaves(function(*args, **kwargs))]
            if not results:
                raise TypeError("the function returns nothing")
            return results

    return guarded
