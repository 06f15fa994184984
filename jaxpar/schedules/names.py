"""The published schedules by the names of the command line."""

from collections.abc import Callable

from jaxpar.schedules import generators
from jaxpar.schedules.table import Table

NAMES: dict[str, Callable[..., list[list[str]]]] = {
    "naive": generators.naive_schedule,
    "gpipe": generators.gpipe_schedule,
    "1f1b": generators.one_f_one_b_schedule,
    "interleaved": generators.interleaved_schedule,
    "breadth-first": generators.breadth_first_schedule,
    "zb-h1": generators.zero_bubble_h1_schedule,
    "zb-h2": generators.zero_bubble_h2_schedule,
    "zb-v": generators.zero_bubble_v_schedule,
    "dualpipe-v": generators.dual_pipe_v_schedule,
}
LOOPED = ("interleaved", "breadth-first")
V_SHAPED = ("zb-v", "dualpipe-v")


def make_table(name: str, stages: int, microbatches: int, chunks: int | None = None) -> Table:
    """The table of a published schedule; `stages` is the number of devices.

    `chunks` is how many stages a device holds: 2 unless said for looped schedules, always 2 for V
    schedules, and 1 for all others.

    Raises:
        ValueError: there is no such schedule, or it does not take these sizes.
    """
    if name not in NAMES:
        raise ValueError(f"schedule: {name} is unknown; use one of {', '.join(NAMES)}")
    if name in LOOPED:
        return Table.parse(NAMES[name](stages, microbatches, 2 if chunks is None else chunks))
    fixed = 2 if name in V_SHAPED else 1
    if chunks not in (None, fixed):
        raise ValueError(
            f"schedule: chunks is {chunks}; {name} has {fixed} on each device; leave chunks out, "
            f"or use one of {', '.join(LOOPED)}"
        )
    return Table.parse(NAMES[name](stages, microbatches))
