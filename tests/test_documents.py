"""The documents say what is true of the tree: links, lists, lessons, commands, figures."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest

from benchmarks import Row
from benchmarks import __main__ as measuring

pytestmark = pytest.mark.always

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = {path.name[:2] for path in (ROOT / "lessons").glob("[0-9][0-9]_*.py")}


@cache
def generated() -> dict[Path, str]:
    """Return the pages with generated parts, as they must be."""
    return runpy.run_path(str(ROOT / "docs/generate.py"))["pages"]()


@cache
def anchors(path: Path) -> set[str]:
    """Return what a link to a heading of this page may end with, as GitHub forms it."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def rows(document: str) -> list[list[str]]:
    """Return the cells of every table row, without heads and rules."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = re.sub(r"\|.*\n\|[-|]+\|\n", "", text).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for line, row in zip(lines, cells, strict=True) if line.startswith("|")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    broken = []
    for link in links:
        place, _, anchor = link.partition("#")
        target = path.parent / place if place else path
        if link.startswith("http") or (target.exists() and not anchor):
            continue
        if not target.exists() or anchor not in anchors(target):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", ["README.md", "docs/commands.md", "docs/design.md"])
def test_generated_parts_are_what_generate_writes(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text == generated()[ROOT / page], "run `make format`"


def test_every_lesson_is_listed() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(lessons/([0-9][0-9])_", readme)) == WRITTEN


def test_what_stands_beside_the_library_is_there() -> None:
    beside = (ROOT / "docs/design.md").read_text("utf-8").partition("Beside the library")[2]
    named = re.findall(r"^\| `([^`]+)` \|", beside.partition("\n## ")[0], re.MULTILINE)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_figures_stand_with_their_commands() -> None:
    """The page of figures is what `make benchmark` would write of these figures."""
    text = measuring.PAGE.read_text(encoding="utf-8")
    sections = measuring.written()
    assert len(sections) == text.count("\n## ")
    for name, part in sections.items():
        machine = re.search(r"^Measured on: (.*)\.$", part, re.MULTILINE)
        assert machine, name
        figures = re.findall(r"^\| ([^|-].*) \| (.*) \| (.*) \|$", part, re.MULTILINE)[1:]
        rows = [Row(*cells) for cells in figures]
        assert part.rstrip() == measuring.section(name, machine[1], rows).rstrip()
    assert text == measuring.page(sections)


def test_glossary_rows_are_complete() -> None:
    table = rows("GLOSSARY.md")
    assert len(table) >= 70
    for english, chinese, meaning, where in table:
        assert english.isascii()
        assert re.search(r"[\u4e00-\u9fff]", chinese), english
        assert meaning, english
        lesson = re.fullmatch(r"(0[1-9]|1[0-9]|2[0-4])(\*?)", where)
        assert lesson or where.startswith("["), english
        if lesson:
            assert (lesson[1] in WRITTEN) != bool(lesson[2]), f"{english}: star or no star?"


def test_glossary_terms_are_unique() -> None:
    terms = [row[0] for row in rows("GLOSSARY.md")]
    assert len(terms) == len(set(terms))


def test_numbers_of_the_curriculum() -> None:
    lessons = [row for row in rows("docs/design.md") if len(row) == 4]
    numbers = [row[0] for row in lessons if re.fullmatch(r"[0-9][0-9]", row[0])]
    assert numbers == [f"{number:02}" for number in range(1, 25)]
