"""A server that is simulated: the scheduler that serves, on step times of the cost model. No JAX.

A step computes all its tokens in one pass. Each group of products takes as long as its arithmetic
or its memory, whichever is longer: the weights are read once for all tokens, and each request reads
its own cache. Devices of tp divide all of it, and send two all-reduces a layer. What a server does
between steps takes no time.

Sources: Williams, Waterman and Patterson 2009 (Roofline); Agrawal et al. 2024 (Sarathi-Serve),
    section 3
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jaxpar.batching.pages import PagePool
from jaxpar.batching.scheduler import Generation, Scheduler, Work
from jaxpar.checks import check_one_of
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.flops import forward_flops, head_flops
from jaxpar.cost.hardware import Cluster
from jaxpar.cost.inference import inference_memory
from jaxpar.cost.layout import check_axis
from jaxpar.cost.network import collective_seconds
from jaxpar.layout import Layout
from jaxpar.serve.measures import LEFT, Outcome
from jaxpar.serve.workload import Planned

BATCHINGS = ("continuous", "static")
USED = 0.9  # of a device's memory, as servers use it unless told otherwise
OF_PAIRS = ("scores", "attended")


@dataclass(frozen=True)
class StepTime:
    """How long steps of a decoder take, whose numbers have 16 bits.

    Attributes:
        pair_flops: of a query and a key, in all layers.
        token_flops: of a token in all layers, without these.
        head_flops: of the logits of a token.
        weight_bytes: on a device.
        cache_bytes: of a token, on a device.
        flops_per_second: of all devices.
        bytes_per_second: of a device's memory.
        sent: the seconds of all all-reduces of a step with so many tokens.
    """

    pair_flops: float
    token_flops: float
    head_flops: float
    weight_bytes: float
    cache_bytes: float
    flops_per_second: float
    bytes_per_second: float
    sent: Callable[[int], float]

    def seconds(self, works: Sequence[Work]) -> float:
        """The time of a step."""
        tokens = sum(work.count for work in works)
        chosen = sum(work.ends_known for work in works)
        products = tokens * self.token_flops + chosen * self.head_flops
        spent = self._longer(products, self.weight_bytes)
        for work in works:
            pairs = work.count * work.start + work.count * (work.count + 1) / 2
            read = (work.start + work.count) * self.cache_bytes
            spent += self._longer(pairs * self.pair_flops, read)
        return spent + self.sent(tokens)

    def _longer(self, flops: float, read_bytes: float) -> float:
        return max(flops / self.flops_per_second, read_bytes / self.bytes_per_second)


def step_time(architecture: Architecture, cluster: Cluster, tp: int) -> StepTime:
    """The step times of a model whose layers `tp` devices of a cluster split.

    Raises:
        ValueError: they cannot split it.
    """
    check_axis("load", architecture, 1, "tp", tp)
    layout = Layout(tp=tp)
    device, reached = cluster.device, cluster.efficiency
    peak = device.peak_flops.get("bf16") or device.peak_flops["fp16"]
    of_token = {term.name: term.value for term in forward_flops(architecture, 1, 1)}
    terms = inference_memory(architecture, batch=1, sequence=1, tp=tp)
    held = {term.name: float(term.value) for term in terms}

    def sent(tokens: int) -> float:
        given = 2 * tokens * architecture.hidden
        one = collective_seconds("all_reduce", given, layout, "tp", cluster)
        return float(2 * architecture.layers * one)

    return StepTime(
        pair_flops=sum(of_token[name] for name in OF_PAIRS),
        token_flops=sum(x for name, x in of_token.items() if name not in OF_PAIRS),
        head_flops=head_flops(architecture, 1, 1).value,
        weight_bytes=held["parameters"],
        cache_bytes=held["kv_cache"],
        flops_per_second=tp * peak * reached.products,
        bytes_per_second=device.memory_bytes_per_second * reached.memory,
        sent=sent,
    )


def pages_that_fit(time: StepTime, cluster: Cluster, page_size: int) -> int:
    """How many pages a device has room for, beside the weights.

    Raises:
        ValueError: there is no room for one.
    """
    free = USED * cluster.device.memory_bytes - time.weight_bytes
    pages = int(free / (page_size * time.cache_bytes))
    if pages < 1:
        raise ValueError(
            f"load: weights of {time.weight_bytes / 1e9:.1f} GB leave no room for a cache on "
            f"{cluster.device.name}, with {cluster.device.memory_bytes / 1e9:.0f} GB; use more --tp"
        )
    return pages


class Batching(Protocol):
    """What decides who gets which tokens computed; `Scheduler` is one."""

    def add(self, one: Generation) -> None:
        """Lets a request wait; raises a ValueError if it can never be served."""

    def next(self) -> list[Work]:
        """What the next step computes."""
        ...

    def record(self, work: Work, tokens: Sequence[int]) -> None:
        """Says which tokens followed from a work."""

    def finish(self, one: Generation) -> None:
        """Lets a request leave."""


class StaticBatching:
    """Batches that wait for their last request, for comparison only.

    Up to `slots` requests that wait are taken together, and their prompts computed at once. Then
    each step computes a token of every row, also of those that have ended, until the last has.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._waiting: list[Generation] = []
        self._batch: list[Generation] = []
        self._running: set[str] = set()

    def add(self, one: Generation) -> None:
        """Lets a request wait."""
        self._waiting.append(one)

    def next(self) -> list[Work]:
        """What the next step computes: all prompts of a batch, or a token of each row."""
        if self._running:
            return [Work(one, len(one.tokens) - 1, 1, decodes=True) for one in self._batch]
        self._batch, self._waiting = self._waiting[: self._slots], self._waiting[self._slots :]
        self._running = {one.name for one in self._batch}
        return [Work(one, 0, one.prompt, decodes=one.decodes) for one in self._batch]

    def record(self, work: Work, tokens: Sequence[int]) -> None:
        """Says that a work is done, and which tokens follow from it."""
        work.generation.tokens.extend(tokens)

    def finish(self, one: Generation) -> None:
        """Lets a request leave; its row is computed until the batch ends."""
        if one in self._waiting:
            self._waiting.remove(one)
        self._running.discard(one.name)


@dataclass(frozen=True)
class Server:
    """What is simulated.

    Attributes:
        time: how long steps take.
        batching: "continuous" or "static".
        slots: how many requests run at once.
        chunk: how many tokens of a prompt are computed at once, and of all prompts in a step.
        pages: the pages of the cache.
        page_size: the tokens of a page.

    Raises:
        ValueError: `batching` is neither.
    """

    time: StepTime
    batching: str
    slots: int
    chunk: int
    pages: int
    page_size: int

    def __post_init__(self) -> None:
        """Checks the batching."""
        check_one_of("load", "--batching", self.batching, BATCHINGS)

    def make(self) -> Batching:
        """Its scheduler."""
        if self.batching == "static":
            return StaticBatching(self.slots)
        pool, budget = PagePool(self.pages, self.page_size), self.chunk + self.slots
        return Scheduler(pool, slots=self.slots, chunk=self.chunk, budget=budget)


def simulate(planned: Sequence[Planned], server: Server) -> list[Outcome]:
    """What becomes of requests that arrive as planned, in their order."""
    scheduler, clock, come = server.make(), 0.0, 0
    running: dict[str, _Client] = {}
    clients = [_Client(number, one) for number, one in enumerate(planned)]
    while come < len(clients) or running:
        if not running:
            clock = max(clock, planned[come].arrival)
        while come < len(clients) and planned[come].arrival <= clock:
            clients[come].ask(scheduler, running)
            come += 1
        works = scheduler.next()
        clock += server.time.seconds(works)
        for work in works:
            if client := running.get(work.generation.name):
                client.told(work, clock, scheduler, running)
    return [client.outcome for client in clients]


class _Client:
    """Who waits for the tokens of one request, and notes when they come."""

    def __init__(self, number: int, planned: Planned) -> None:
        self._planned, self._times = planned, []
        self.outcome = Outcome(planned.arrival, (), 0, planned.arrival, LEFT)
        # Tokens of its own, so that no request shares the pages of another.
        tokens = [(number << 32) + place for place in range(planned.prompt)]
        self._one = Generation(str(number), tokens, planned.prompt + planned.output)

    def ask(self, scheduler: Batching, running: dict[str, "_Client"]) -> None:
        """Sends the request, unless it leaves before."""
        if self._planned.leaves_after == 0:
            return
        try:
            scheduler.add(self._one)
        except ValueError:
            arrival = self._planned.arrival
            self.outcome = Outcome(arrival, (), 0, arrival, "too long for the pages")
        else:
            running[self._one.name] = self

    def told(
        self, work: Work, clock: float, scheduler: Batching, running: dict[str, "_Client"]
    ) -> None:
        """Notes the token that follows from a work, if one does; perhaps it was the last."""
        one, known = self._one, work.ends_known
        scheduler.record(work, [0] if known else [])
        if not known:
            return
        self._times.append(clock)
        ends = len(one.tokens) == one.limit
        leaves = len(self._times) == self._planned.leaves_after
        if ends or leaves:
            failed = None if ends else LEFT
            count, times = len(self._times), tuple(self._times)
            self.outcome = Outcome(self._planned.arrival, times, count, clock, failed)
            scheduler.finish(one)
            del running[one.name]
