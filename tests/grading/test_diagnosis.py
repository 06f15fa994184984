"""What is said about wrong answers that equal a known mistake in some cases only, or in none."""

from collections.abc import Callable

import jax
import pytest
from jax import lax

from jaxpar.collectives import tree_broadcast
from jaxpar.contracts.base import load
from jaxpar.grading.diagnosis import ANOTHER_TYPE, NOTHING_ARRIVED
from jaxpar.grading.in_process import ELSEWHERE, InProcessPool, judged, judged_source
from jaxpar.grading.messages import ProgramKey
from jaxpar.grading.processes import ChildEnded
from jaxpar.grading.program_reader import ProgramReader
from jaxpar.grading.reader_messages import Author, ExportOurs, MistakeName
from jaxpar.parallel.vocabulary import vocab_parallel_cross_entropy

TREE = "jaxpar.contracts.ring_and_tree.tree_broadcast"
SECOND_MESH = load(TREE).cases[1].mesh
DOUBLING = "jaxpar.contracts.ring_and_tree.recursive_doubling_all_reduce"
REFUSES = """
from jax import lax
from jaxpar.collectives import recursive_doubling_all_reduce as right

def answer(x, *, axis):
    if lax.axis_size(axis).bit_count() > 1:
        {}
    return right(x, axis=axis)
"""


@pytest.fixture(scope="module")
def judge() -> Callable:
    pool = InProcessPool(TREE)  # on eight devices, then on six
    return lambda function: judged(function, pool)


def zeros_on_eight(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    for held in (1, 2, 4):
        pairs = [((root + p) % 8, (root + p + held) % 8) for p in range(held)]
        x = lax.ppermute(x, axis, pairs)
    return x


def zeros_from_device_0(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    n = lax.axis_size(axis)
    for held in (1, 2, 4):
        pairs = [(p, p + held) for p in range(min(held, n - held))]
        x = lax.ppermute(x, axis, pairs)
    return x


def three_times_on_eight(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    if lax.axis_size(axis) != 8:
        raise ValueError("eight only")
    return 3 * x


def right_on_eight(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    if lax.axis_size(axis) != 8:
        raise ValueError("eight only")
    return tree_broadcast(x, axis=axis, root=root)


def test_a_mistake_is_named_although_another_case_raises(judge: Callable) -> None:
    assert judge(zeros_on_eight).diagnosis == load(TREE).mistake("zeros_without_source").sentence


@pytest.mark.parametrize("which", ["forward", "gradient"])
def test_a_program_that_ends_with_an_error_is_a_finding(
    which: str, judge: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ProgramReader._run

    def without_memory(
        reader: ProgramReader, author: Author, program: ProgramKey, blobs: list[bytes]
    ) -> list[bytes]:
        if (author, program) == ("answer", (which, 1)):
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nmore")
        return run(reader, author, program, blobs)

    monkeypatch.setattr(ProgramReader, "_run", without_memory)
    failure = judge(tree_broadcast).first_failure()
    assert failure.name == {"forward": "values"}.get(which, which)
    assert failure.message == f"on {SECOND_MESH}: RESOURCE_EXHAUSTED: Out of memory"


def test_a_mistake_of_an_unknown_name_is_not_taken_for_the_reference() -> None:
    reader = ProgramReader(load("jaxpar.contracts.ring_and_tree.tree_broadcast"))
    with pytest.raises(ValueError, match="a mistake 'nobody' of tree_broadcast; it has root"):
        reader.answer(ExportOurs(("forward", 0), MistakeName("nobody")), [])


def test_zeros_of_a_permute_are_named_whatever_else_is_wrong(judge: Callable) -> None:
    assert judge(zeros_from_device_0).diagnosis == NOTHING_ARRIVED


def test_an_error_of_another_case_is_told_with_its_mesh(judge: Callable) -> None:
    verdict = judge(three_times_on_eight)
    assert verdict.first_failure().message.startswith("on tp=8, ")
    assert verdict.diagnosis == f"on {SECOND_MESH}: ValueError: eight only"


def test_a_right_result_of_another_case_accuses_nobody(judge: Callable) -> None:
    assert judge(right_on_eight).diagnosis == f"on {SECOND_MESH}: ValueError: eight only"


def loss_through_a_loop(logits_shard: jax.Array, labels: jax.Array, *, axis: str) -> jax.Array:
    loss = vocab_parallel_cross_entropy(logits_shard, labels, axis=axis)
    return lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, 1 * c[1]), (0, loss))[1]


@pytest.mark.full
def test_an_error_is_a_mistake_only_if_the_mistake_raises_the_same() -> None:
    pool = InProcessPool("jaxpar.contracts.vocabulary_and_sequence.vocab_parallel_cross_entropy")
    through_pmax = load(pool.where).mistake("loss_through_pmax")
    assert judged(through_pmax.function, pool).diagnosis == through_pmax.sentence
    diagnosis = judged(loss_through_a_loop, pool).diagnosis
    assert diagnosis.startswith("on tp=") and "This loop has no gradient" in diagnosis


def two_way_and_unchecked(
    num_bytes: float, n: int, *, latency_seconds: float, bytes_per_second: float
) -> float:
    return 2 * (n - 1) * (latency_seconds + num_bytes / n / (2 * bytes_per_second or 1))


def unchecked_and_not_known(
    num_bytes: float, n: int, *, latency_seconds: float, bytes_per_second: float
) -> float:
    return 3 * two_way_and_unchecked(
        num_bytes, n, latency_seconds=latency_seconds, bytes_per_second=bytes_per_second
    )


def test_a_wrong_number_is_named_although_nothing_is_refused() -> None:
    pool = InProcessPool("jaxpar.contracts.costs.all_reduce_seconds")
    named = load(pool.where).mistake("seconds_both_directions").sentence
    assert judged(two_way_and_unchecked, pool).diagnosis == named
    assert judged(unchecked_and_not_known, pool).diagnosis == ""


def many_numbers(shape: tuple, layout: str, mesh: dict) -> list[int]:
    return list(range(5_000))


def test_a_long_result_is_told_in_short() -> None:
    verdict = judged(many_numbers, InProcessPool("jaxpar.contracts.devices_and_meshes.local_shape"))
    failure = verdict.first_failure()
    assert failure and failure.got.startswith("(0, 1, 2, ")
    assert len(failure.got) < len(failure.message) < 1000


def equation_8_unrefused(
    batch: int, sequence: int, layers: int, hidden: int, vocab: int, *, remat: str
) -> float:
    b, s, n, h, v = batch, sequence, layers, hidden, vocab
    matrices, scores = 24 * b * s * h * h * n, 4 * b * s * s * h * n
    again = {"none": 0, "selective": 3 * scores}.get(remat, matrices + scores)
    return 3 * (matrices + scores + 2 * b * s * h * v) + again


def test_an_answer_is_judged_by_the_equation_that_it_follows() -> None:
    verdict = judged(
        equation_8_unrefused, InProcessPool("jaxpar.contracts.costs.transformer_step_flops")
    )
    failure = verdict.first_failure()
    assert failure and failure.message.endswith("it must raise ValueError")


def test_a_search_that_takes_too_long_costs_no_point(
    judge: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, found = ProgramReader._run, judge(zeros_on_eight)

    def too_slow_for_mistakes(
        reader: ProgramReader, author: Author, program: ProgramKey, blobs: list[bytes]
    ) -> list[bytes]:
        if isinstance(author, MistakeName):
            raise ChildEnded("timeout")
        return run(reader, author, program, blobs)

    monkeypatch.setattr(ProgramReader, "_run", too_slow_for_mistakes)
    unnamed = judge(zeros_on_eight)
    assert unnamed.status == "fail"
    assert [p.status for p in unnamed.properties] == [p.status for p in found.properties]
    assert unnamed.diagnosis != found.diagnosis


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [
        ("raise TypeError('a power of two')", "TypeError"),
        ("assert False, 'a power of two'", "AssertionError"),
        ("1 / 0", None),
    ],
)
def test_an_answer_that_refuses_with_another_type_is_told_so(
    refusal: str, raised: str | None
) -> None:
    scope: dict[str, Callable] = {}
    exec(compile(REFUSES.format(refusal), ELSEWHERE.path, "exec"), scope)
    diagnosis = judged(scope["answer"], InProcessPool(DOUBLING)).diagnosis
    assert diagnosis == ANOTHER_TYPE.format(raised) if raised else "raises" not in diagnosis


SUMS = """
import jax
from jax import lax

def times(backward):
    same = jax.custom_vjp(lambda x: x)
    same.defvjp(lambda x: (x, None), lambda _, ct: (backward(ct),))
    return same

def mean_over_devices(x, *, axis):
    y = lax.pmean(x, axis)
    return {}
"""
EQUAL = "its operand is equal on the devices of tp already."
SUMMED = f"The sum over tp at line 12 multiplies by 8: {EQUAL}"
AVERAGED = f"The mean over tp at line 12 changes nothing: {EQUAL}"


@pytest.mark.parametrize(
    ("returned", "wrong", "diagnosis"),
    [
        ("3 * lax.psum(y, axis)", "values", SUMMED),
        ("3 * lax.pmean(y, axis)", "values", AVERAGED),
        ("lax.pmean(lax.psum(3 * y, axis), axis)", "values", SUMMED),
        ("times(lambda ct: lax.psum(3 * ct, axis))(y)", "gradient", SUMMED),
        ("3 * y", "values", ""),
        ("lax.pmean(y, axis)", "communication", ""),
    ],
)
def test_a_sum_of_equal_values_is_told_where_nothing_else_is(
    returned: str, wrong: str, diagnosis: str
) -> None:
    pool = InProcessPool("jaxpar.contracts.collectives.mean_over_devices")
    verdict = judged_source(SUMS.format(returned), pool)
    failure = verdict.first_failure()
    assert (failure and failure.name, verdict.diagnosis) == (wrong, diagnosis)
