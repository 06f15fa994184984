"""Where a technique divides matrix products among devices, its contract judges flops."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import export

from jaxpar.contracts.base import Contract, load
from jaxpar.contracts.case import fill
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.grading.program_export import export_forward
from jaxpar.inspector.mlir import parse
from jaxpar.inspector.stablehlo import count_flops

PROGRAMS = [row for row in EXERCISES if row.kind == "program"]


def _flops_of_a_device(contract: Contract) -> int | None:
    return count_flops(parse(export_forward(contract.reference, contract.cases[0]).module))


def _flops_on_one_device(contract: Contract) -> int | None:
    case = contract.cases[0]

    def results(*arrays: jax.Array) -> list[Any]:
        leaves = iter(arrays)
        args = [fill(value, leaves) for value in case.args.values()]
        return [expected.blocks for expected in contract.oracle(case, *args)]

    shapes = [jax.ShapeDtypeStruct(leaf.shape, jnp.dtype(leaf.dtype)) for _, leaf in case.arrays()]
    exported = export.export(jax.jit(results), platforms=["cpu"])(*shapes)
    return count_flops(parse(exported.mlir_module_serialized))


@pytest.mark.parametrize("row", PROGRAMS, ids=lambda row: row.id)
def test_divided_work_is_judged(row: Exercise) -> None:
    contract = load(row.where)
    own, whole = _flops_of_a_device(contract), _flops_on_one_device(contract)
    assert whole is not None
    if own is None:  # a loop whose length depends on the data: nothing is sent, so none does more
        assert contract.communication and contract.communication.forward == ((),)
    elif own and whole > 1.5 * own:
        assert contract.flops, f"{whole:,} flops on one device, {own:,} on each of several"
