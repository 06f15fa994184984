"""What a server counts and measures, as the text that Prometheus reads. No JAX."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper ends of the bins of a histogram."""


@dataclass
class Histogram:
    """How many durations were in each bin, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        """Adds a duration."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds


@dataclass
class Metrics:
    """What has happened since a server was started.

    Attributes:
        requests: how many ended in which way.
        prompt_tokens: tokens of prompts that were taken.
        generated_tokens: tokens that were generated for clients.
        reruns: how often a request was run again, since its replica died.
        first_token: from the arrival of a request to its first token.
        gap: between a token and the next one of the same request.
    """

    requests: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    generated_tokens: int = 0
    reruns: int = 0
    first_token: Histogram = field(default_factory=Histogram)
    gap: Histogram = field(default_factory=Histogram)

    def lines(self) -> Iterable[str]:
        """The counters and histograms, as Prometheus reads them."""
        by_result = {_labels(result=name): n for name, n in sorted(self.requests.items())}
        yield from samples("requests_total", "counter", "Requests that ended.", by_result)
        for name, count, what in (
            ("prompt_tokens_total", self.prompt_tokens, "Tokens of prompts that were taken."),
            ("generated_tokens_total", self.generated_tokens, "Tokens that were generated."),
            ("reruns_total", self.reruns, "Requests run again, as their replica died."),
        ):
            yield from samples(name, "counter", what, {"": count})
        for name, histogram, what in (
            ("time_to_first_token_seconds", self.first_token, "From arrival to the first token."),
            ("inter_token_seconds", self.gap, "Between two tokens of a request."),
        ):
            yield from _histogram(name, histogram, what)


def by_replica(values: Iterable[float | None]) -> dict[str, float]:
    """A sample for each replica, in their order; None: it has none."""
    numbered = enumerate(values)
    return {_labels(replica=str(n)): value for n, value in numbered if value is not None}


def samples(name: str, kind: str, what: str, values: Mapping[str, float]) -> Iterable[str]:
    """The lines of one metric: its values by their labels."""
    yield f"# HELP jaxpar_{name} {what}"
    yield f"# TYPE jaxpar_{name} {kind}"
    yield from (f"jaxpar_{name}{labels} {value}" for labels, value in values.items())


def _histogram(name: str, histogram: Histogram, what: str) -> Iterable[str]:
    below, bins = 0, {}
    for end, count in zip((*SECONDS, "+Inf"), histogram.counts, strict=True):
        below += count
        bins[_labels(le=str(end))] = below
    yield f"# HELP jaxpar_{name} {what}"
    yield f"# TYPE jaxpar_{name} histogram"
    yield from (f"jaxpar_{name}_bucket{labels} {count}" for labels, count in bins.items())
    yield f"jaxpar_{name}_sum {histogram.total}"
    yield f"jaxpar_{name}_count {below}"


def _labels(**labels: str) -> str:
    """Labels whose values need no escaping."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
