"""Run every benchmark, print the table, and write it into README.md with the machine's name."""

import importlib
import os
import pkgutil
import platform
import re
from importlib.metadata import version
from pathlib import Path

import benchmarks
from benchmarks import Row

README = Path(__file__).parents[1] / "README.md"
SECTION = re.compile(r"(?<=<!-- benchmarks -->\n).*(?=<!-- end of benchmarks -->)", re.DOTALL)


def machine() -> str:
    """Name the processor, cores, memory and versions that the numbers belong to."""
    cpuinfo = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    processor = named.group(1) if named else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, jax {version('jax')}"
    )


def table(rows: list[Row]) -> str:
    """Write the rows as a Markdown table under the machine's name."""
    lines = [f"| {row.what} | {row.target} | {row.measured} |" for row in rows]
    head = ["| what | target | measured |", "|---|---|---|"]
    return "\n".join([f"Measured on: {machine()}.", "", *head, *lines, ""])


def main() -> None:
    """Run the benchmarks one after another; each alone on the machine."""
    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    rows: list[Row] = []
    for name in names:
        if name != "__main__":
            print(f"benchmarks.{name} ...", flush=True)
            rows += importlib.import_module(f"benchmarks.{name}").rows()
    text = table(rows)
    print(text)
    README.write_text(SECTION.sub(lambda _: text, README.read_text()))


if __name__ == "__main__":
    main()
