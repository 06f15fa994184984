"""What Prometheus reads."""

from jaxpar.serve.metrics import SECONDS, Metrics, by_replica, samples


def test_a_histogram_counts_what_is_below() -> None:
    metrics = Metrics()
    for seconds in (0.001, 0.0011, 0.3, 100.0):
        metrics.gap.observe(seconds)
    lines = list(metrics.lines())
    bins = [line for line in lines if line.startswith("jaxpar_inter_token_seconds_bucket")]
    assert [int(line.split()[-1]) for line in bins] == [1, 2, 2, 2, 2, 2, 2, 2, 3, *[3] * 6, 4]
    assert bins[0].startswith('jaxpar_inter_token_seconds_bucket{le="0.001"} ')
    assert bins[-1] == 'jaxpar_inter_token_seconds_bucket{le="+Inf"} 4'
    assert len(bins) == len(SECONDS) + 1
    assert "jaxpar_inter_token_seconds_sum 100.3021" in lines
    assert "jaxpar_inter_token_seconds_count 4" in lines


def test_each_metric_has_a_kind_and_labels() -> None:
    metrics = Metrics()
    metrics.requests["length"] += 2
    lines = list(metrics.lines())
    assert "# TYPE jaxpar_requests_total counter" in lines
    assert 'jaxpar_requests_total{result="length"} 2' in lines
    assert list(samples("x", "gauge", "What.", by_replica([3, None, 4]))) == [
        "# HELP jaxpar_x What.",
        "# TYPE jaxpar_x gauge",
        'jaxpar_x{replica="0"} 3',
        'jaxpar_x{replica="2"} 4',
    ]
