"""The report as a newcomer reads it."""

import io

from rich.console import Console

from jaxpar.inspector import Collective, Memory, Report, render


def shown(report: Report) -> list[str]:
    """Every line of the report, with a single space between its words."""
    console = Console(file=io.StringIO(), width=100)
    console.print(render(report))
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def sent(**fields) -> Collective:
    given = {"kind": "permute", "axes": ("tp",), "group_size": 4, "dtype": "float32"}
    return Collective(**(given | {"operand_bytes": 4096, "wire_bytes": 4096} | fields))


def test_totals_by_axis_and_bytes_by_line() -> None:
    pmean = {"kind": "all_reduce", "axes": ("dp", "tp"), "group_size": 8, "source": "a/b/c.py:3"}
    report = Report((sent(times=3), sent(**pmean, wire_bytes=7168), sent(times=2)))
    lines = shown(report)
    assert "tp 4 permute 5 20,480 20,480" in lines
    assert "dp, tp 8 all_reduce 1 4,096 7,168" in lines
    assert "total 6 24,576 27,648" in lines
    assert "? permute tp float32 5 4,096 4,096" in lines
    assert "b/c.py:3 all_reduce dp, tp float32 1 4,096 7,168" in lines
    assert not [line for line in lines if line.startswith(("<=:", "?:"))]


def test_branches_are_at_most_and_unknown_loops_are_unknown() -> None:
    lines = shown(Report((sent(conditional=True, times=2),)))
    assert "total <= 2 <= 8,192 <= 8,192" in lines
    assert [line for line in lines if line.startswith("<=: inside a branch")]
    lines = shown(Report((sent(times=None), sent(conditional=True))))
    assert "total ? ? ?" in lines
    assert [line for line in lines if line.startswith("?: inside a loop")]


def test_large_numbers_have_decimal_units() -> None:
    report = Report((sent(operand_bytes=16 * 10**9, wire_bytes=2.5),), flops=10**15)
    lines = shown(report)
    assert "total 1 16.0 GB 2.5" in lines
    assert "Flops of matrix products and convolutions: 1,000.0 T" in lines


def test_memory_notes_and_nothing_sent() -> None:
    memory = Memory(100, 50, 30, 7, 3)
    lines = shown(Report((), flops=None, memory=memory, notes=("it is so",)))
    assert "Sends nothing." in lines
    assert "outputs in place of arguments -30" in lines
    assert "total 130" in lines
    assert "Flops of matrix products and convolutions: ?" in lines
    assert "Note: it is so." in lines
