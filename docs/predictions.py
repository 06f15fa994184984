"""Write docs/predictions.md: predicted step times beside published ones, and what was fitted.

Run it from anywhere with `python docs/predictions.py`; a test holds the page against the library.
"""

from collections.abc import Iterable
from pathlib import Path
from statistics import median

from jaxpar.cost.planner.calibrate import fit, left_out, runs_by_kind, summary
from jaxpar.cost.planner.published import Run, published_runs
from jaxpar.cost.planner.ranking import Ranking, ranked_runs, rankings

PAGE = Path(__file__).with_suffix(".md")
INTRODUCTION = """# Predicted and published step times

`python docs/predictions.py` writes this page. Layouts and published figures are in
[published.toml](../jaxpar/cost/planner/published.toml), with their sources; formulas are in
[step.py](../jaxpar/cost/step.py). `jaxpar plan --explain` shows every term of a prediction.

One figure is fitted for each kind of hardware, none for a paper or a model: the fraction of the
peak that matrix products reach. The others are round (see the end of
[hardware.toml](../jaxpar/cost/hardware.toml)). "hopper-tuned" is an H100 with the kernels and
settings of NVIDIA's own recipes. Programs that launch each kernel from Python ("eager") wait for
their host where a layer's work takes less than the 4 to 6.5 ms that its launches take. Errors are
predicted over published seconds, less 1. MFU counts every query with every key, and nothing that is
recomputed; where a paper counts otherwise, its figure differs from the one here. The published MFU
comes first, then the predicted one. Where a paper prints operations or tokens in a second, the
published seconds are computed from them. Overlap is assumed where the source says so. Models
without dropout have attention in one kernel, which keeps no scores: "remat none" then takes the
same time as "selective". Runs that are "outside" do not count, as the formulas do not hold for
them; the reasons are in the files.
"""
RANKING = """
## Rankings of layouts

Sets of measured runs of one model on the same devices, which differ in their layout alone
([rankings.toml](../jaxpar/cost/planner/rankings.toml), with their sources). Only the round figures
of hosts and networks, and how many links a node of Hagemann et al. has, were chosen with these runs
in view. In their sets without a fused norm, norms run as LLaMA's own code, kernel by kernel, which
moves 13 times as many bytes; their program sums all gradients in float32 on every device, and sends
whole activations between stages. The correlation is Spearman's, of measured and predicted speed: 1
if both orders agree. "Lost" is how much slower the planner's first choice is than the fastest run.
"Error" is the median of the absolute errors of seconds, and "memory" the median of predicted over
measured bytes, where these were measured. nanotron keeps more
than the formulas know: gradients in 16 bits beside those in 32, logits in 12 bytes, and in each
layer what tensor parallelism has gathered. Of Megatron-LM's programs the formulas give 0.99 to 1.11
of the measured memory of large models (Qi et al. below), and 0.82 to 1.16 of models of a few
hundred megabytes.
"""


def page() -> str:
    """Return the whole page."""
    must = [run for run in published_runs() if run.must]
    inside = [run for run in published_runs() if not run.outside]
    parts = [
        INTRODUCTION,
        "## What is fitted\n",
        *_table(["kind", "products", "runs", "error"], _kinds()),
        f"\nAll {len(inside)} runs that are not outside: {summary(run.error() for run in inside)}. "
        f"Off by more than 20%: {sum(abs(run.error()) > 0.2 for run in inside)}.\n",
        f"The five papers that the model was made for, {len(must)} runs: "
        f"{summary(run.error() for run in must)}. Bounds on these are 8% and 20%.\n",
        "## Without its own paper\n",
        "The same runs, predicted with what is fitted to the other papers on that hardware.\n",
        *_table(["paper", "hardware", "runs", "error"], _left_out()),
    ]
    parts.append(RANKING)
    parts.append(_ranked() + "\n")
    head = ["set", "runs", "correlation", "lost", "error", "memory"]
    parts += _table(head, map(_ranking, rankings()))
    for title in dict.fromkeys(run.title for run in published_runs()):
        runs = [run for run in published_runs() if run.title == title]
        parts += [f"\n## {title}\n", f"Source: {runs[0].source}.\n", *_memory(runs)]
        head = ["model", "devices", "layout", "batch", "published", "predicted", "error", "MFU"]
        parts += _table(head, map(_row, runs))
    return "\n".join(parts) + "\n"


def _kinds() -> Iterable[list[str]]:
    for kind, runs in runs_by_kind().items():
        errors = summary(run.error() for run in runs)
        yield [kind, f"{fit(runs).products:.3f}", str(len(runs)), errors]


def _left_out() -> Iterable[list[str]]:
    titles = {run.paper: run.title for run in published_runs()}
    for kind, runs in runs_by_kind().items():
        for paper, errors in left_out(runs).items():
            yield [titles[paper], kind, str(len(errors)), summary(errors)]


def _ranked() -> str:
    sets, runs = rankings(), ranked_runs()
    outside = sum(run.outside for run in runs)
    good = sum(one.loss <= 0.1 for one in sets)
    return (
        f"Of {len(runs)} runs {outside} are outside. Of {len(sets)} sets with three runs or more, "
        f"the planner's first choice is at most 10% slower than the fastest run in {good}. Medians "
        f"over the sets: correlation {median(one.correlation for one in sets):.2f}, lost "
        f"{median(one.loss for one in sets):.0%}, error {median(one.error for one in sets):.1%}."
    )


def _row(run: Run) -> list[str]:
    layout, predicted = run.layout, run.predicted_seconds()
    chosen = [layout.mesh, f"microbatch {layout.microbatch}"]
    chosen += [f"{layout.chunks} chunks"] * (layout.chunks > 1)
    chosen += [f"cp by {layout.context}"] * (layout.cp > 1)
    chosen += [f"remat {layout.remat}"] + ["sequence parallel"] * layout.sequence_parallel
    sizes = f"{run.batch:,} x {run.sequence:,}"
    times = [f"{seconds:.2f} s" for seconds in (run.seconds, predicted)]
    mfu = f"{run.mfu(run.seconds):.1%}, {run.mfu(predicted):.1%}"
    name = f"{run.architecture.name}, {run.cluster.name}" + ", outside" * run.outside
    return [
        name,
        f"{layout.devices:,}",
        ", ".join(chosen),
        sizes,
        *times,
        f"{run.error():+.1%}",
        mfu,
    ]


def _memory(runs: list[Run]) -> Iterable[str]:
    """A line on the memory of a paper's runs, where it was measured."""
    parts = [run.predicted_bytes() / run.peak_bytes for run in runs if run.peak_bytes]
    if parts:
        known = f"Predicted over measured memory: {min(parts):.2f} to {max(parts):.2f}"
        yield ": ".join(filter(None, (known, runs[0].uncounted))) + ".\n"


def _ranking(one: Ranking) -> list[str]:
    numbers = [f"{one.correlation:.2f}", f"{one.loss:.0%}", f"{one.error:.0%}"]
    memory = f"{one.memory:.2f}" if one.memory else "-"
    return [one.title, str(len(one.runs)), *numbers, memory]


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
