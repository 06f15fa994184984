"""Renders a report as tables for a terminal."""

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jaxpar.inspector.report import Collective, Memory, Report, short_source

Number = int | float | None  # None stands for a number that is not known before the program runs
_NUMBER_COLUMNS = ("times", "operand", "wire")
_PREFIXES = (("T", 10**12), ("G", 10**9), ("M", 10**6))


def render(report: Report) -> RenderableType:
    """Returns tables of what one device sends (by axis and by line), holds and computes."""
    parts: list[RenderableType] = [Text("One device, in one run of the program\n", style="bold")]
    if report.collectives:
        parts += [_by_axis(report.collectives), _by_line(report.collectives)]
        parts.append(Text(_legend(report.collectives) + "\n"))
    else:
        parts.append(Text("Sends nothing.\n"))
    if report.memory:
        parts.append(_memory(report.memory))
    parts.append(Text(f"Flops of matrix products and convolutions: {_number(report.flops)}"))
    parts += [Text(f"Note: {note}.") for note in report.notes]
    return Group(*parts)


def _by_axis(collectives: Sequence[Collective]) -> Table:
    title = "Bytes over each mesh axis, in total"
    table = _table(title, ("axes", "devices", "collective"), _NUMBER_COLUMNS)
    groups = _grouped(collectives, lambda one: (", ".join(one.axes), str(one.group_size), one.kind))
    for texts, members in sorted(groups.items()):
        table.add_row(*texts, *_totals(members))
    table.add_section()
    table.add_row("total", "", "", *_totals(collectives), style="bold")
    return table


def _by_line(collectives: Sequence[Collective]) -> Table:
    title = "Bytes of each line, each time it runs"
    table = _table(title, ("line", "collective", "axes", "dtype"), _NUMBER_COLUMNS)
    groups = _grouped(
        collectives,
        lambda one: (
            short_source(one.source),
            one.kind,
            ", ".join(one.axes),
            one.dtype,
            _bytes(one.operand_bytes),
            _bytes(one.wire_bytes),
        ),
    )
    for (*texts, operand, wire), members in groups.items():
        table.add_row(*texts, _totals(members)[0], operand, wire)
    return table


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="italic",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for header in texts:
        table.add_column(header, overflow="fold")
    for header in numbers:
        table.add_column(header, justify="right", no_wrap=True)
    return table


def _grouped(
    collectives: Sequence[Collective], key: Callable[[Collective], tuple[str, ...]]
) -> dict[tuple[str, ...], list[Collective]]:
    groups: dict[tuple[str, ...], list[Collective]] = {}
    for collective in collectives:
        groups.setdefault(key(collective), []).append(collective)
    return groups


def _totals(collectives: Sequence[Collective]) -> tuple[str, str, str]:
    """The executions, operand bytes and wire bytes of all collectives together."""
    times, operand_bytes, wire_bytes = 0, 0, 0
    for one in collectives:
        if one.times is None:
            return _number(None), _bytes(None), _bytes(None)
        times += one.times
        operand_bytes += one.times * one.operand_bytes
        wire_bytes += one.times * one.wire_bytes
    mark = "<= " if any(one.conditional for one in collectives) else ""
    return mark + _number(times), mark + _bytes(operand_bytes), mark + _bytes(wire_bytes)


def _legend(collectives: Sequence[Collective]) -> str:
    lines = [
        "operand: the input of the collective; wire: what a device sends with a ring algorithm.",
        "Permute: wire bytes are those through the busiest device, sent or received.",
    ]
    if any(one.conditional for one in collectives):
        lines.append("<=: inside a branch of a conditional, so it may not run.")
    if any(one.times is None for one in collectives):
        lines.append("?: inside a loop whose length is not known before it runs.")
    return "\n".join(lines)


def _memory(memory: Memory) -> Table:
    table = _table("Bytes held", ("what",), ("bytes",))
    table.add_row("arguments", _bytes(memory.arguments_bytes))
    table.add_row("outputs", _bytes(memory.outputs_bytes))
    table.add_row("intermediate results", _bytes(memory.temp_bytes))
    table.add_row("constants", _bytes(memory.constants_bytes))
    if memory.aliases_bytes:
        table.add_row("outputs in place of arguments", "-" + _bytes(memory.aliases_bytes))
    table.add_section()
    table.add_row("total", _bytes(memory.total_bytes), style="bold")
    return table


def _bytes(value: Number) -> str:
    return _number(value, unit="B")


def _number(value: Number, unit: str = "") -> str:
    """Formats a number exactly up to seven digits, and above that with a decimal prefix."""
    if value is None:
        return "?"
    for prefix, size in _PREFIXES:
        if value >= 10 * size:
            return f"{value / size:,.1f} {prefix}{unit}"
    return f"{value:,.1f}" if value % 1 else f"{int(value):,}"
