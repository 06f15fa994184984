"""Run all benchmarks or some, and write their figures and the machine into docs/benchmarks.md.

`python -m benchmarks [NAME...]`: other sections of the page stay as they are.
"""

import ast
import importlib
import os
import pkgutil
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import benchmarks
from benchmarks import Row

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
INTRODUCTION = """# What is measured

`make benchmark` runs everything in `benchmarks/`, one after another, and writes this page, and
`python -m benchmarks NAME` writes a section anew. The command above a table measures that table
alone and prints it. Ratios are between two sides that took turns in one run on one machine; below 1
the first side is faster, or smaller. `reported` stands where there is no target. Times on simulated
devices say nothing about a GPU or a TPU: what carries over are bytes, operations and the size of
programs.
"""


def main() -> None:
    """Run the benchmarks one after another; each alone on the machine."""
    sections = written()
    for name in sys.argv[1:] or names():
        print(f"benchmarks.{name} ...", flush=True)
        rows = importlib.import_module(f"benchmarks.{name}").rows()
        if not rows:
            print("  needs a device that is not here; its section stays as it is")
            continue
        sections[name] = section(name, machine(), rows)
        print(sections[name])
        PAGE.write_text(page(sections), "utf-8")


def written() -> dict[str, str]:
    """Return the sections of the page by their names, without those of benchmarks that are gone."""
    _, *parts = re.split(r"^(?=## )", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    found = {part.split("\n")[0].removeprefix("## "): part for part in parts}
    return {name: found[name] for name in names() if name in found}


def names() -> list[str]:
    """Return the modules that measure something."""
    modules = pkgutil.iter_modules(benchmarks.__path__)
    return sorted(one.name for one in modules if not one.ispkg and one.name != "__main__")


def machine() -> str:
    """Name the processor, cores, memory and versions that the figures belong to.

    A name such as "AMD EPYC" stands for several processors; family and model tell them apart.
    """
    cpuinfo = _read("/proc/cpuinfo")
    named = re.search(r"cpu family\s*: (\d+)\nmodel\s*: (\d+)\nmodel name\s*: (.*)", cpuinfo)
    processor = (
        "{2} (family {0}, model {1})".format(*named.groups()) if named else platform.machine()
    )
    chosen = re.search(r"\[(.*)\]", _read("/sys/kernel/mm/transparent_hugepage/enabled"))
    huge_pages = f"huge pages: {chosen[1]}, " if chosen else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, {huge_pages}{platform.system()}, "
        f"Python {platform.python_version()}, jax {version('jax')}"
    )


def _read(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def page(sections: Mapping[str, str]) -> str:
    """Write the whole page, its sections in the order of their names."""
    return "\n".join(
        [INTRODUCTION, *(text.rstrip() + "\n" for _, text in sorted(sections.items()))]
    )


def section(name: str, machine: str, rows: Sequence[Row]) -> str:
    """Write one benchmark: what it is about, its command, the machine, and its figures."""
    module = ast.parse(Path(__file__).with_name(f"{name}.py").read_text("utf-8"))
    about = ast.get_docstring(module) or ""
    lines = [f"| {row.what} | {row.target} | {row.measured} |" for row in rows]
    return "\n".join([
        f"## {name}\n",
        f"{about}\n",
        f"```\n.venv/bin/python -m benchmarks.{name}\n```\n",
        f"Measured on: {machine}.\n",
        "| what | target | measured |",
        "|---|---|---|",
        *lines,
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
