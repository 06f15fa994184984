"""How far predicted step times are from published ones; docs/predictions.md has every run."""

from benchmarks import Row
from jaxpar.cost.planner.calibrate import left_out, runs_by_kind, summary
from jaxpar.cost.planner.published import published_runs


def rows() -> list[Row]:
    """The errors of runs that tests bound, and those of each paper by a fit to the others."""
    must = [run.error() for run in published_runs() if run.must]
    what = f"error of predicted step time, {len(must)} published runs"
    table = [Row(what, "median 8%, worst 20%", summary(must))]
    for kind, runs in runs_by_kind().items():
        for paper, errors in left_out(runs).items():
            what = f"the same, {len(errors)} of {paper}, {kind} fitted without them"
            table.append(Row(what, "", summary(errors)))
    return table


if __name__ == "__main__":
    for run in published_runs():
        print(f"{run.title} | {run.architecture.name} | {run.layout.mesh} | {run.error():+.1%}")
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
