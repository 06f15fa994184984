"""Pieces of a step in lanes: when each runs, and what is not hidden."""

import pytest

from jaxpar.schedules.overlap import Task, exposed_seconds, run, step_seconds


def backward(count: int) -> list[Task]:
    return [Task("backward", f"B{place}", "compute", 2.0) for place in range(count)]


def sent_after(layers: list[Task], seconds: float) -> list[Task]:
    return [Task("send", f"S{n}", "network", seconds, (layer,)) for n, layer in enumerate(layers)]


def test_a_lane_does_one_thing_at_a_time_and_waits_for_what_it_needs() -> None:
    layers = backward(3)
    spans = run([*layers, *sent_after(layers, 3.0)])
    assert [(span.start, span.end) for span in spans] == [
        (0, 2), (2, 4), (4, 6),
        (2, 5), (5, 8), (8, 11),
    ]  # fmt: skip
    assert step_seconds(spans) == 11
    assert exposed_seconds(spans) == 5


def test_what_is_shorter_than_the_next_layer_leaves_only_the_last_exposed() -> None:
    layers = backward(4)
    assert exposed_seconds(run([*layers, *sent_after(layers, 1.5)])) == 1.5


def test_a_lane_keeps_its_order_even_if_a_later_task_could_start() -> None:
    (layer,) = backward(1)
    late, early = sent_after([layer], 1.0)[0], Task("send", "early", "network", 1.0)
    assert [span.start for span in run([layer, late, early])] == [0, 2, 3]


def test_a_task_that_waits_for_a_later_one_is_refused() -> None:
    (layer,) = backward(1)
    with pytest.raises(ValueError, match="'S0' waits for 'B0', which is not given before it"):
        run([*sent_after([layer], 1.0), layer])
