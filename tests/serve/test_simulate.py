"""Simulated servers: by hand where one request runs alone, and in what must hold for many."""

import pytest

from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.serve.measures import Objectives, Summary, summary
from jaxpar.serve.simulate import Server, StepTime, pages_that_fit, simulate, step_time
from jaxpar.serve.workload import Load, Planned, plan

TIME = StepTime(
    pair_flops=0.0,
    token_flops=1.0,
    head_flops=10.0,
    weight_bytes=40.0,
    cache_bytes=0.5,
    flops_per_second=1.0,
    bytes_per_second=10.0,
    sent=lambda tokens: 0.25,
)


def server(**how: object) -> Server:
    sizes = {"batching": "continuous", "slots": 4, "chunk": 8, "pages": 64, "page_size": 4}
    return Server(**({"time": TIME} | sizes | how))


def test_one_request_alone() -> None:
    """A prompt of 20 in chunks of 8, and a budget of 12; then 2 more tokens."""
    (outcome,) = simulate([Planned(2.0, 20, 3)], server())
    chunks = [8 + 0.4, 8 + 0.8, 4 + 10 + 1.0]
    first = 2.0 + sum(chunks) + 3 * 0.25
    decodes = [11 + 0.05 * length + 0.25 for length in (21, 22)]
    assert outcome.times == pytest.approx((first, first + decodes[0], first + sum(decodes)))
    assert (outcome.tokens, outcome.failed, outcome.end) == (3, None, outcome.times[-1])


def test_memory_is_the_limit_where_there_are_few_tokens() -> None:
    few = server(time=StepTime(0.0, 0.1, 0.1, 40.0, 0.5, 1.0, 10.0, lambda tokens: 0.0))
    (outcome,) = simulate([Planned(0.0, 4, 2)], few)
    assert outcome.times == pytest.approx((4 + 0.2, 8 + 0.2 + 0.25))


def test_static_batches_wait_for_their_last_request() -> None:
    planned = [Planned(0.0, 4, 1), Planned(0.0, 4, 6), Planned(0.0, 4, 1)]
    static = simulate(planned, server(batching="static", slots=2))
    continuous = simulate(planned, server(slots=2))
    assert static[0].end < static[1].end < static[2].end
    assert continuous[2].end < continuous[1].end


@pytest.mark.parametrize("batching", ["static", "continuous"])
def test_every_request_ends(batching: str) -> None:
    """There are fewer pages than the requests need, and some clients leave."""
    load = Load(rate=1.0, requests=80, prompt=(1, 30), output=(1, 30), leave=0.3)
    planned = plan(load)
    outcomes = simulate(planned, server(batching=batching, pages=16))
    for one, outcome in zip(planned, outcomes, strict=True):
        if one.leaves_after is None:
            assert (outcome.tokens, outcome.failed) == (one.output, None)
            assert outcome.times[0] > outcome.arrival
        else:
            assert (outcome.tokens, outcome.failed) == (one.leaves_after, "left")


def test_what_no_page_has_room_for_fails() -> None:
    outcomes = simulate([Planned(0.0, 400, 3), Planned(0.0, 4, 3)], server())
    assert [one.failed for one in outcomes] == ["too long for the pages", None]


def test_the_step_time_of_a_model() -> None:
    """Llama 3 8B on H100: the numbers of its config.json and of the data sheet."""
    cluster = find_cluster("h100")
    one, four = (step_time(find_model("llama3-8b"), cluster, tp) for tp in (1, 4))
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert one.token_flops == 2 * 32 * layer
    assert one.head_flops == 2 * 4096 * 128256
    assert one.pair_flops == 4 * 32 * 4096
    assert one.weight_bytes == 2 * 8_030_261_248
    assert one.cache_bytes == 2 * 2 * 32 * 8 * 128
    assert one.sent(100) == 0
    assert four.cache_bytes == one.cache_bytes / 4
    assert four.flops_per_second == 4 * one.flops_per_second
    sent = 2 * 32 * (6 * 1.9e-6 + 2 * 3 / 4 * 2 * 100 * 4096 / 450e9)
    assert four.sent(100) == pytest.approx(sent)
    pages = pages_that_fit(one, cluster, 16)
    assert pages == int((0.9 * 80e9 - one.weight_bytes) / (16 * one.cache_bytes))
    with pytest.raises(ValueError, match="no room"):
        pages_that_fit(step_time(find_model("llama3-70b"), cluster, 1), cluster, 16)
    with pytest.raises(ValueError, match="tp=3"):
        step_time(find_model("llama3-8b"), cluster, 3)


def found(batching: str, chunk: int, rate: float) -> Summary:
    cluster = find_cluster("h100")
    time = step_time(find_model("llama3-8b"), cluster, 1)
    load = Load(rate=rate, requests=150, prompt=(128, 4096), output=(16, 256))
    pages = pages_that_fit(time, cluster, 16)
    its = Server(time, batching, slots=64, chunk=chunk, pages=pages, page_size=16)
    return summary(simulate(plan(load), its), Objectives())


def test_continuous_batches_serve_more_and_chunks_end_long_gaps() -> None:
    static, whole = found("static", 4096, 10), found("continuous", 4096, 10)
    chunks = found("continuous", 256, 10)
    assert whole.tokens_per_second > 1.2 * static.tokens_per_second
    assert whole.first_token[0] < static.first_token[0] / 10
    assert chunks.gap[2] < whole.gap[2] / 5
    assert chunks.tokens_per_second > 0.95 * whole.tokens_per_second


def test_another_batching_is_refused() -> None:
    with pytest.raises(ValueError, match="--batching"):
        server(batching="dynamic")
