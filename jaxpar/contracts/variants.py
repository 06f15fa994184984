"""Variants of exercises: the same work, another result, for a class that may know the library's.

The secret of a course chooses for each exercise whether it is as written or one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import jax

from jaxpar.contracts.base import Contract, Expected, Mistake
from jaxpar.contracts.case import Case

Change = Callable[[jax.Array], jax.Array]

AS_WRITTEN = (
    "This is right for the exercise as it is in the public course; your stub asks for a variant of "
    "it, which its docstring describes."
)


@dataclass(frozen=True)
class Variant:
    """An exercise on one array x in which each device's x or result is changed.

    The first dim of x must be split over the whole mesh.

    Args:
        reference: the library's function for the variant; its signature and docstring make the
            stub.
        task: one line that says what to write.
        before: takes each device's x of the variant to what the exercise as written computes with.
        after: takes each result of the exercise as written to the variant's.
    """

    reference: Callable[..., Any]
    task: str
    before: Change | None = None
    after: Change | None = None

    def __call__(self, written: Contract) -> Contract:
        """The contract of this variant; the exercise as written is a mistake in it."""
        mistakes = [replace(m, function=self._changed(m.function)) for m in written.mistakes]
        as_written = Mistake("another_variant", written.reference, "values", AS_WRITTEN)

        def oracle(case: Case, x: jax.Array) -> list[Expected]:
            blocks = x.reshape(*case.sizes.values(), -1, *x.shape[1:])
            return [
                Expected(
                    _on_each_device(case, self.after, expected.blocks),
                    _on_each_device(case, self.after, expected.whole),
                )
                for expected in written.oracle(
                    case, _on_each_device(case, self.before, blocks).reshape(x.shape)
                )
            ]

        return replace(
            written,
            reference=self.reference,
            oracle=oracle,
            task=self.task,
            mistakes=(*mistakes, as_written),
            variants=(),
        )

    def _changed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def variant(x: jax.Array, **how: Any) -> Any:
            results = function(self.before(x) if self.before else x, **how)
            return jax.tree.map(self.after, results) if self.after else results

        return variant


def _on_each_device(case: Case, change: Change | None, blocks: Any) -> Any:
    """Changes what each device holds, [*mesh sizes, *local shape]."""
    if change is None or blocks is None:
        return blocks
    for _ in case.sizes:
        change = jax.vmap(change)
    return change(blocks)
