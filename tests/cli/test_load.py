"""`jaxpar load`: a server, a simulated one, and what is refused."""

from typing import Any

import pytest

from tests.serve.serving import StandIn, served

SMALL = "--rate 500 --requests 20 --prompt 1:20 --output 4:9"
SIMULATED = "load --simulate --rate 8 --requests 60 --prompt 128:2048 --json"


def test_a_server_is_loaded(run: Any) -> None:
    with served([StandIn()], queue=50) as client:
        url = str(client.base_url)
        found = run("load", url, *SMALL.split(), "--json")
        shown = run("load", url, *SMALL.split(), "--slo-ttft", "60", "--slo-itl", "60")
        impossible = run("load", url, *SMALL.split(), "--slo-ttft", "0.000001", "--json")
        too_long = run("load", url, *SMALL.split(), "--prompt", "60", "--output", "9")
    assert (found.code, shown.code, too_long.code) == (0, 0, 1)
    assert (found.json["requests"], found.json["well"]) == (20, 20)
    assert found.json["first_token_seconds"]["p50"] > 0
    assert found.json["client_cpu_seconds_per_token"] > 0
    assert found.json["good_requests_per_second"] == found.json["requests_per_second"]
    assert "20 of 20 requests ended well" in shown.out
    assert impossible.json["good_requests_per_second"] == 0
    assert "20 HTTP 400" in too_long.out


def test_a_replica_is_killed(run: Any) -> None:
    with served([StandIn(), StandIn()], queue=50, kill=True) as client:
        ended = run(
            "load", str(client.base_url), *SMALL.split(), "--kill", "1@0.01s", "--leave", "0.2"
        )
        health = client.get("/health").json()
    assert ended.code == 0
    assert [one["alive"] for one in health["replicas"]] == [True, False]


def test_a_server_is_simulated(run: Any) -> None:
    options = [
        "load",
        "--simulate",
        "--rate",
        "8",
        "--requests",
        "60",
        "--prompt",
        "128:2048",
        "--json",
    ]
    one = run(*options)
    two = run(*options, "--tp", "4")
    static = run(*options, "--batching", "static", "--slots", "8")
    assert (one.code, two.code, static.code) == (0, 0, 0)
    assert (one.json["model"], one.json["hardware"], one.json["tp"]) == ("llama3-8b", "h100", 1)
    assert one.json == run(*options).json
    p50 = [each.json["first_token_seconds"]["p50"] for each in (two, one, static)]
    assert p50 == sorted(p50)
    assert two.json["pages"] > 4 * one.json["pages"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "load: give the URL of a server, or --simulate"),
        (["http://127.0.0.1:1", "--simulate"], "load: give the URL of a server, or --simulate"),
        (["http://127.0.0.1:1"], "load: http://127.0.0.1:1: no server"),
        (["http://127.0.0.1:1", "--tp", "2"], "load: --tp is for --simulate"),
        (["--simulate", "--kill", "1@10s"], "load: --kill with --simulate"),
        (["http://127.0.0.1:1", "--kill", "1"], "load: --kill 1: write"),
        (["--simulate", "--prompt", "a"], "load: --prompt a: write"),
        (["--simulate", "--prompt", "9:3"], "load: prompt 9:3"),
        (["--simulate", "--rate", "0"], "load: rate"),
        (["--simulate", "--model", "nothing"], "model 'nothing' is unknown"),
        (["--simulate", "--model", "llama3-70b"], "load: weights of 141.1 GB leave no room"),
        (["--simulate", "--batching", "none"], "load: --batching is 'none'"),
    ],
)
def test_bad_use(run: Any, arguments: list[str], word: str) -> None:
    ended = run("load", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert word in ended.err
    assert ended.err.count("\n") == 1
