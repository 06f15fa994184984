"""A pipeline schedule as a table: one row per device, one cell per action.

A cell names a stage, a kind and a microbatch: `2F0` is the forward of microbatch 0 on stage 2. The
kinds are F (forward), B (full backward), and the two halves of a backward: I (gradient with respect
to the stage's input) and W (gradient with respect to its weights). Empty cells are idle, and rows
may differ in length. This is the grammar of the CSV files of PyTorch's pipelining, in their format
"compute_only", in which transfers are not listed because they follow from the table.

A row is an ORDER, not a clock: the device does its actions one after the other, each as soon as
what it needs is done. So idle cells may be left out, and whether a table can run depends on what
its actions need, not on the columns in which they appear. `rules.to_ticks` adds the idle cells.

Devices, stages and microbatches count from 0. Errors count rows and cells from 1, as spreadsheets
and editors do: row 1 is device 0.

Source: PyTorch, torch/distributed/pipelining/schedules.py (the grammar)
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
CELL = re.compile(r"([0-9]{1,9})([FBIW])([0-9]{1,9})")


class Action(NamedTuple):
    """What a device does in a cell: one kind of work on one microbatch of one stage."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


Place = tuple[int, int]  # the device and the cell, both counted from 0


def place_name(place: Place) -> str:
    """The name of a place in an error message, where rows and cells count from 1."""
    device, cell = place
    return f"row {device + 1} (device {device}), cell {cell + 1}"


@dataclass(frozen=True)
class Table:
    """A schedule: for each device its actions in order, with None where it is idle.

    Nothing is checked here. The properties are meaningful only if `rules.check` accepts the table.
    """

    rows: tuple[tuple[Action | None, ...], ...]

    @classmethod
    def parse(cls, rows: Sequence[Sequence[str | None]]) -> "Table":
        """Parses rows of cells such as "0F0"; an empty cell, or None, is idle.

        Raises:
            ValueError: a cell is not an action.
        """
        return cls(
            tuple(
                tuple(_parse_cell(text, (device, cell)) for cell, text in enumerate(row))
                for device, row in enumerate(rows)
            )
        )

    def to_rows(self) -> list[list[str]]:
        """Writes the rows as cells such as "0F0", empty where the device is idle."""
        return [[str(action) if action else "" for action in row] for row in self.rows]

    @classmethod
    def from_csv(cls, text: str) -> "Table":
        """Reads CSV text with one line per device, as PyTorch's pipelining writes it.

        Raises:
            ValueError: a cell is not an action.
        """
        lines = csv.reader(text.rstrip().splitlines())
        try:
            return cls.parse(list(lines))
        except csv.Error as error:
            raise ValueError(
                f"schedule: row {lines.line_num}, cell 1: {error}; a row is cells such as 0F0 with "
                "commas between them; write it in this form"
            ) from error

    def to_csv(self) -> str:
        """Writes CSV text with one line per device, as PyTorch's pipelining reads it."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.to_rows())
        return text.getvalue()

    @cached_property
    def places(self) -> dict[Action, Place]:
        """The place of each action."""
        return {
            action: (device, cell)
            for device, row in enumerate(self.rows)
            for cell, action in enumerate(row)
            if action
        }

    @cached_property
    def stage_devices(self) -> dict[int, int]:
        """The device of each stage."""
        return {action.stage: device for action, (device, _) in self.places.items()}

    def device_of(self, stage: int) -> int:
        """The device that holds a stage."""
        return self.stage_devices[stage]

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.rows)

    @cached_property
    def stages(self) -> int:
        """The number of stages, over all devices."""
        return 1 + max(self.stage_devices, default=-1)

    @cached_property
    def chunks(self) -> int:
        """The number of stages on the device that has the most."""
        devices = list(self.stage_devices.values())
        return max((devices.count(device) for device in set(devices)), default=0)

    @cached_property
    def microbatches(self) -> int:
        """The number of microbatches."""
        return 1 + max((action.microbatch for action in self.places), default=-1)

    def needs(self, action: Action) -> Action | None:
        """The action whose result this one needs; None for a forward of stage 0."""
        stage, kind, microbatch = action
        if kind == "F":
            return Action(stage - 1, "F", microbatch) if stage else None
        if kind == "W":
            return Action(stage, "I", microbatch)
        if stage == self.stages - 1:
            return Action(stage, "F", microbatch)
        # The next stage may do its backward in another form than this one.
        same_form = Action(stage + 1, kind, microbatch)
        other_form = Action(stage + 1, "I" if kind == "B" else "B", microbatch)
        return same_form if same_form in self.places else other_form


def _parse_cell(text: str | None, place: Place) -> Action | None:
    if text is None or (isinstance(text, str) and not text.strip()):
        return None
    match = CELL.fullmatch(text.strip()) if isinstance(text, str) else None
    if not match:
        raise ValueError(
            f"schedule: {place_name(place)}: {repr(text)[:40]} is not an action; a cell is a "
            "stage, one of F, B, I, W, and a microbatch; write it like 0F0, or leave it empty"
        )
    stage, kind, microbatch = match.groups()
    return Action(int(stage), kind, int(microbatch))
