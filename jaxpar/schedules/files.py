"""Reads schedules from CSV files."""

from pathlib import Path

from jaxpar.schedules.rules import check
from jaxpar.schedules.table import Table


class BrokenTableError(ValueError):
    """The table in a file breaks a rule; the message names the file, the row and the cell."""


def read_table(path: Path) -> Table:
    """Reads and checks the table in a file.

    Raises:
        ValueError: the file cannot be read.
        BrokenTableError: the file can be read, but its table breaks a rule.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"{path}: {reason}; give a CSV file of cells") from None
    try:
        table = Table.from_csv(text)
        check(table)
    except ValueError as error:
        raise BrokenTableError(f"{path}: {str(error).removeprefix('schedule: ')}") from None
    return table
