"""A law of a contract accepts every right result, and refuses wrong ones by orders of magnitude."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from jaxpar.contracts.base import Contract, with_drawn
from jaxpar.contracts.case import Case
from jaxpar.contracts.low_communication import quantized_all_reduce, top_k_all_reduce
from jaxpar.contracts.low_communication.common import given
from jaxpar.contracts.smaller_models import int8_all_gather, quantize_rows
from jaxpar.grading.oracle import Truth, truth

Outputs = list[np.ndarray]
QUANTIZED, TOP_K = (module.__name__ for module in (quantized_all_reduce, top_k_all_reduce))
SEEDS = range(4)


@cache
def truths(where: str) -> list[tuple[Contract, Case, Truth]]:
    """The cases of an exercise, those of the stub and drawn ones, with inputs of several seeds."""
    contract = with_drawn(where, 7)
    return [
        (contract, case, truth(contract, index, seed))
        for index, case in enumerate(contract.cases)
        for seed in SEEDS
    ]


def rounded_at_random(case: Case, inputs: Outputs, rng: np.random.Generator) -> Outputs:
    """A right result in float32, whose numbers are rounded up or down by chance."""

    def lossy(v: np.ndarray) -> np.ndarray:
        blocks = v.reshape(*v.shape[:-1], -1, case.kwargs["block"])
        most = np.float32(2 ** (case.kwargs["bits"] - 1) - 1)
        scales = np.abs(blocks).max(axis=-1, keepdims=True) / most
        scales = np.where(scales == 0, np.float32(1), scales)
        codes = np.floor(blocks / scales + rng.random(blocks.shape, np.float32))
        return (np.clip(codes, -most, most) * scales).reshape(v.shape)

    x, error, second = (given(case, array).astype(np.float32) for array in inputs)
    n, v = len(x), x + error
    sent = lossy(v)
    parts = sent.mean(axis=0).reshape(*sent.shape[1:-1], n, -1)
    parts = np.moveaxis(parts, -2, 0) + second
    mean = lossy(parts)
    whole = np.moveaxis(mean, 0, -2).reshape(sent.shape[1:])
    place = list(case.sizes).index(case.kwargs["axis"])
    results = np.broadcast_to(whole, sent.shape), v - sent, parts - mean
    return [np.moveaxis(one, 0, place) for one in results]


def right_outputs(true: Truth) -> Outputs:
    return [np.array(expected.blocks, np.float32) for expected in true.expected]


@pytest.mark.parametrize("where", [QUANTIZED, TOP_K], ids=lambda where: where.rpartition(".")[2])
def test_the_oracle_keeps_to_the_law(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {QUANTIZED: quantized_all_reduce, TOP_K: top_k_all_reduce}[where]
    monkeypatch.setattr(module, "ROUNDING", module.ROUNDING / 2)
    for contract, case, true in truths(where):
        assert contract.law and contract.law(case, true.inputs, right_outputs(true)) is None


def test_rounding_at_random_keeps_to_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized_all_reduce, "ROUNDING", quantized_all_reduce.ROUNDING / 4)
    rng = np.random.default_rng(0)
    for contract, case, true in truths(QUANTIZED):
        outputs = rounded_at_random(case, true.inputs, rng)
        assert contract.law and contract.law(case, true.inputs, outputs) is None


def at(place: int, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Outputs], Outputs]:
    """Changes one of the outputs."""
    return lambda outputs: [change(y) if i == place else y for i, y in enumerate(outputs)]


def nan_at_the_end(y: np.ndarray) -> np.ndarray:
    y = y.copy()
    y[..., -1] = np.nan
    return y


SPOILED = {
    "error dropped": at(1, lambda y: 0 * y),
    "error with another sign": at(1, lambda y: -y),
    "error twice": at(1, lambda y: 2 * y),
    "sum for mean": at(0, lambda y: 2 * y),
    "nothing": at(0, lambda y: 0 * y),
    "nan in the mean": at(0, nan_at_the_end),
    "nan in the error": at(1, nan_at_the_end),
    "infinity in the mean": at(0, lambda y: y + np.inf),
    "infinity in the error": at(1, lambda y: y - np.inf),
}
OF_HALVES = {
    "second error dropped": at(2, lambda y: 0 * y),
    "second error with another sign": at(2, lambda y: -y),
    "nan in the second error": at(2, nan_at_the_end),
}


@pytest.mark.parametrize(
    ("where", "spoil"),
    [
        *(
            pytest.param(QUANTIZED, f, id=f"quantized-{n}")
            for n, f in (SPOILED | OF_HALVES).items()
        ),
        *(pytest.param(TOP_K, f, id=f"top_k-{n}") for n, f in SPOILED.items()),
    ],
)
def test_what_is_wrong_is_refused_with_ten_times_the_tolerance(
    where: str, spoil: Callable[[Outputs], Outputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the cases of the stub, whatever the seed: one device alone may have nothing to lose."""
    module = {QUANTIZED: quantized_all_reduce, TOP_K: top_k_all_reduce}[where]
    monkeypatch.setattr(module, "ROUNDING", module.ROUNDING * 10)
    for contract, case, true in truths(where):
        if case in contract.visible:
            outputs = spoil(right_outputs(true))
            assert contract.law and contract.law(case, true.inputs, outputs)


def old_errors(case: Case, inputs: Outputs, outputs: Outputs, places: range) -> Outputs:
    """The errors as they came, where the new ones should be."""
    sizes = case.sizes.values()
    return [
        inputs[i].reshape(*sizes, -1).astype(np.float32) if i in places else y
        for i, y in enumerate(outputs)
    ]


@pytest.mark.parametrize("where", [QUANTIZED, TOP_K], ids=lambda where: where.rpartition(".")[2])
def test_errors_that_do_not_change_are_refused(where: str) -> None:
    for contract, case, true in truths(where):
        outputs = right_outputs(true)
        spoiled = old_errors(case, true.inputs, outputs, range(1, len(outputs)))
        assert contract.law and contract.law(case, true.inputs, spoiled)


def test_a_step_more_than_a_block_has_is_refused() -> None:
    """What one block's rounding loses must not be that of another block's scale."""
    for contract, case, true in truths(QUANTIZED):
        mean, error, second = right_outputs(true)
        shift = np.zeros_like(error)
        step = np.abs(given(case, true.inputs[0])).max() / (2 ** (case.kwargs["bits"] - 1) - 1)
        shift[..., -1] = 3 * step
        balanced = [mean - shift, error + shift, second]
        assert contract.law and contract.law(case, true.inputs, balanced)


@pytest.mark.parametrize(
    ("every", "steps", "accepted"),
    [
        pytest.param(10**6, 1, True, id="one number"),
        pytest.param(10**6, 10, False, id="one number by ten steps"),
        pytest.param(50, 1, False, id="one in fifty"),
    ],
)
def test_few_numbers_may_be_rounded_to_both_sides(every: int, steps: int, accepted: bool) -> None:
    """What is sent and the error may disagree about a number that is nearly between two codes."""
    rng = np.random.default_rng(0)
    for contract, case, true in truths(QUANTIZED):
        mean, *errors = rounded_at_random(case, true.inputs, rng)
        block, most = case.kwargs["block"], 2 ** (case.kwargs["bits"] - 1) - 1
        x, error = (given(case, array) for array in true.inputs[:2])
        largest = np.abs(x + error).reshape(*x.shape[:-1], -1, block).max(axis=-1)
        step = np.repeat(largest.mean(axis=0) / most, block, axis=-1)
        step[..., np.arange(x.shape[-1])[::-1] % every > 0] = 0  # the first block is of zeros
        shift = np.expand_dims(steps * step, list(case.sizes).index(case.kwargs["axis"]))
        found = contract.law and contract.law(case, true.inputs, [mean + shift, *errors])
        assert (found is None) == accepted


def test_fewer_numbers_than_k_are_refused() -> None:
    """Also where only the smallest of them is left."""
    for contract, case, true in truths(TOP_K):
        mean, left = right_outputs(true)
        x, error = (given(case, array) for array in true.inputs)
        corrected = x + error
        axis = list(case.sizes).index(case.kwargs["axis"])
        sent = np.moveaxis(corrected, 0, axis) - left
        was_sent = np.abs(sent) > 1e-6 * np.abs(corrected).max()  # not what float32 rounds off
        magnitudes = np.where(was_sent, np.abs(sent), np.inf)
        place = magnitudes.argmin(axis=-1)[..., None]
        least = np.take_along_axis(sent, place, axis=-1)
        kept = left.copy()
        np.put_along_axis(kept, place, least.astype(np.float32), axis=-1)
        fewer = np.moveaxis(corrected, 0, axis) - kept
        mean = np.broadcast_to(fewer.mean(axis=axis, keepdims=True), mean.shape)
        assert contract.law and contract.law(case, true.inputs, [mean, kept])


ROUNDED = {"rows": quantize_rows, "gather": int8_all_gather}
rounded = pytest.mark.parametrize("name", ROUNDED)


@rounded
def test_rounding_to_the_nearest_keeps_to_the_law(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an oracle in float64, which is then rounded to what answers return."""
    monkeypatch.setattr(ROUNDED[name], "NEAREST", 0.5002)
    for contract, case, true in truths(ROUNDED[name].__name__):
        outputs = right_outputs(true)
        assert contract.law and contract.law(case, true.inputs, outputs) is None


LOST = {
    "nothing": lambda y: 0 * y,
    "a hundredth more": lambda y: 1.01 * y,
    "another sign": lambda y: -y,
    "nan": nan_at_the_end,
    "infinity": lambda y: y + np.inf,
}


@rounded
@pytest.mark.parametrize("spoil", LOST.values(), ids=LOST)
def test_no_output_may_be_spoiled(name: str, spoil: Callable[[np.ndarray], np.ndarray]) -> None:
    for contract, case, true in truths(ROUNDED[name].__name__):
        outputs = right_outputs(true)
        for place in range(len(outputs)):
            with np.errstate(invalid="ignore"):  # as the judge does
                assert contract.law and contract.law(case, true.inputs, at(place, spoil)(outputs))


def test_no_device_may_have_another_matrix() -> None:
    """Not even the one whose rows they are: within a step, but not those of the others."""
    for contract, case, true in truths(int8_all_gather.__name__):
        (whole,) = right_outputs(true)
        if case.sizes[case.kwargs["axis"]] > 1:
            mine = whole.copy()
            mine[(-1,) * len(case.sizes)] = np.asarray(true.inputs[0], np.float32)
            assert contract.law and contract.law(case, true.inputs, [mine])
