"""The verb that loads a server with requests, or a simulated one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxpar.cli.base import LEFT, WRONG, AsJson, app, errors_as_bad_use, show
from jaxpar.cli.sizes import whole

if TYPE_CHECKING:
    from jaxpar.serve.load import Kill
    from jaxpar.serve.measures import Summary
    from jaxpar.serve.workload import Load

SIMULATED = "Of the simulated server: "
OF_SIMULATION = {
    "model": "llama3-8b", "hardware": "h100", "tp": 1, "batching": "continuous", "slots": 256,
    "chunk": 512, "page_size": 16,
}  # fmt: skip

Url = Annotated[
    str | None, typer.Argument(metavar="URL", help="The server, as in http://127.0.0.1:8000.")
]
Rate = Annotated[
    float, typer.Option(metavar="R", help="Requests that arrive in a second, in the mean.")
]
Requests = Annotated[int, whole("How many requests are sent.")]
Prompt = Annotated[
    str, typer.Option(metavar="LEAST:MOST", help="Tokens of a prompt; all numbers are alike.")
]
Output = Annotated[
    str, typer.Option(metavar="LEAST:MOST", help="Tokens to generate; all numbers are alike.")
]
Leave = Annotated[
    float, typer.Option(metavar="FRACTION", help="How many clients leave before the last token.")
]
KillOption = Annotated[
    str | None,
    typer.Option(
        "--kill",
        metavar="REPLICA@SECONDS",
        help="Kill a replica while the run goes on, as in 1@10s; the server must have been "
        "started with --allow-kill.",
    ),
]
FirstToken = Annotated[
    float | None,
    typer.Option(
        "--slo-ttft", metavar="S", help="For goodput: seconds to the first token at most."
    ),
]
Gap = Annotated[
    float | None,
    typer.Option(
        "--slo-itl",
        metavar="S",
        help="For goodput: seconds between tokens at most, in the mean of a request.",
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, metavar="N", help="Chooses arrivals, lengths and prompts.")
]
Simulate = Annotated[
    bool,
    typer.Option(
        "--simulate",
        help="Simulate a server instead: the same scheduler, on step times of the cost model.",
    ),
]
Model = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"{SIMULATED}the model; llama3-8b.")
]
Hardware = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"{SIMULATED}its devices; h100.")
]
Tp = Annotated[int | None, whole(f"{SIMULATED}devices that split each layer; 1.")]
Batching = Annotated[
    str | None,
    typer.Option(metavar="HOW", help=f"{SIMULATED}continuous, or static (batches that wait)."),
]
Slots = Annotated[int | None, whole(f"{SIMULATED}requests that run at once; 256.")]
Chunk = Annotated[int | None, whole(f"{SIMULATED}tokens of prompts in a step; 512.")]
PageSize = Annotated[int | None, whole(f"{SIMULATED}tokens of a page; 16.")]

# A line that is \b alone keeps the lines after it as they are.
EXAMPLES = """\b
Examples:
  jaxpar load http://127.0.0.1:8000 --rate 5 --requests 200 --slo-ttft 0.5 --slo-itl 0.05
  jaxpar load http://127.0.0.1:8000 --leave 0.05 --kill 1@10s
  jaxpar load --simulate --model llama3-8b --hardware h100 --rate 20 --prompt 128:4096
  jaxpar load --simulate --model llama3-70b --tp 4 --batching static
"""


@app.command("load", epilog=EXAMPLES)
def load_server(
    context: typer.Context,
    url: Url = None,
    rate: Rate = 5.0,
    requests: Requests = 200,
    prompt: Prompt = "32:256",
    output: Output = "16:128",
    leave: Leave = 0.0,
    kill: KillOption = None,
    slo_ttft: FirstToken = None,
    slo_itl: Gap = None,
    seed: Seed = 0,
    simulate: Simulate = False,
    model: Model = None,
    hardware: Hardware = None,
    tp: Tp = None,
    batching: Batching = None,
    slots: Slots = None,
    chunk: Chunk = None,
    page_size: PageSize = None,
    as_json: AsJson = False,
) -> None:
    """Sends requests that arrive at random to a server, and shows how it answered.

    It takes any server with OpenAI's completions. Clients do not wait for one another, and time
    counts from when a request arrives. It ends with 1 if a request failed.
    """
    with errors_as_bad_use():
        from jaxpar.serve.workload import Load

        lengths = {"prompt": _span("--prompt", prompt), "output": _span("--output", output)}
        load = Load(rate, requests, **lengths, leave=leave, seed=seed)
        given = {name: context.params[name] for name in OF_SIMULATION}
        _check_use(url, simulate, kill, given)
        objectives = {"first_token": slo_ttft, "gap": slo_itl}
        try:
            found = (
                _simulated(load, given, objectives)
                if simulate
                else _loaded(url, load, kill, objectives)
            )
        except KeyboardInterrupt:
            raise typer.Exit(LEFT) from None
    summary, more, notes = found
    show(as_json, summary.to_dict() | more, [*summary.lines(), *notes])
    raise typer.Exit(WRONG if summary.failed else 0)


Found = tuple["Summary", dict[str, Any], list[str]]
"""The numbers of a run, and more of them, as data and as lines."""


def _check_use(url: str | None, simulate: bool, kill: str | None, given: dict[str, Any]) -> None:
    if simulate == bool(url):
        raise ValueError("load: give the URL of a server, or --simulate, and not both")
    if simulate and kill:
        raise ValueError("load: --kill with --simulate says nothing; leave it out")
    for name, value in given.items():
        if value is not None and not simulate:
            raise ValueError(
                f"load: --{name.replace('_', '-')} is for --simulate; leave it out, or add that"
            )


def _loaded(
    url: str | None, load: Load, kill: str | None, objectives: dict[str, float | None]
) -> Found:
    from jaxpar.serve.libraries import need_libraries

    need_libraries("load")
    from jaxpar.serve.load import run_load
    from jaxpar.serve.workload import plan

    assert url
    loaded = run_load(url, plan(load), seed=load.seed, kill=_kill(kill))
    tokens = sum(one.tokens for one in loaded.outcomes)
    each = loaded.cpu_seconds / max(tokens, 1)
    more = {"late_seconds": loaded.late_seconds, "client_cpu_seconds_per_token": each}
    note = (
        f"clients     {1e6 * each:,.0f} us of processor time a token, and at most "
        f"{1e3 * loaded.late_seconds:,.1f} ms late"
    )
    return _summary(loaded.outcomes, objectives), more, [note]


def _simulated(load: Load, given: dict[str, Any], objectives: dict[str, float | None]) -> Found:
    from jaxpar.cost.hardware import find_cluster
    from jaxpar.cost.models import find_model
    from jaxpar.serve.simulate import Server, pages_that_fit, simulate, step_time
    from jaxpar.serve.workload import plan

    its = OF_SIMULATION | {name: value for name, value in given.items() if value is not None}
    cluster = find_cluster(its["hardware"])
    time = step_time(find_model(its["model"]), cluster, its["tp"])
    pages = pages_that_fit(time, cluster, its["page_size"])
    sizes = {name: its[name] for name in ("batching", "slots", "chunk", "page_size")}
    outcomes = simulate(plan(load), Server(time, pages=pages, **sizes))
    name = f"{its['model']} on {its['tp']} of {cluster.device.name}"
    note = f"simulated   {name}, {its['batching']} batching, {pages:,} pages of {its['page_size']}"
    return _summary(outcomes, objectives), its | {"pages": pages}, [note]


def _summary(outcomes: list[Any], objectives: dict[str, float | None]) -> Summary:
    from jaxpar.serve.measures import Objectives, summary

    return summary(
        outcomes, Objectives(**{name: x for name, x in objectives.items() if x is not None})
    )


def _span(option: str, text: str) -> tuple[int, int]:
    """The two numbers of LEAST:MOST; one number stands for both."""
    if not (found := re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text)):
        raise ValueError(f"load: {option} {text}: write the fewest and the most, as in 32:256")
    return int(found[1]), int(found[2] or found[1])


def _kill(text: str | None) -> Kill | None:
    from jaxpar.serve.load import Kill

    if text is None:
        return None
    if not (found := re.fullmatch(r"(\d{1,6})@(\d{1,9}(?:\.\d+)?)s?", text)):
        raise ValueError(f"load: --kill {text}: write the replica and when, as in 1@10s")
    return Kill(int(found[1]), float(found[2]))
