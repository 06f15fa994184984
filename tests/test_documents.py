"""The documents say what is true of the tree: links, paths, lessons, commands."""

import re
import runpy
from pathlib import Path

import pytest
import typer

from jaxpar.cli import app
from jaxpar.inspector import inspect_path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = {path.name[:2] for path in (ROOT / "lessons").glob("[0-9][0-9]_*.py")}
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows(document: str) -> list[list[str]]:
    """Return the cells of every table row, without heads and rules."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = re.sub(r"\|.*\n\|[-|]+\|\n", "", text).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for line, row in zip(lines, cells, strict=True) if line.startswith("|")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith("http")]
    assert not [target for target in local if not (path.parent / target).exists()]


def test_the_house_is_the_tree() -> None:
    house = README.partition("## The house")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `([^`]+)` \|", house, re.MULTILINE))
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_file_of_the_library_has_its_line() -> None:
    listed = README.partition("<!-- house -->\n")[2].partition("<!-- end of house -->")[0]
    assert listed == runpy.run_path(str(ROOT / "docs" / "house.py"))["house"]()


def test_the_program_of_the_readme_can_be_inspected(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (program,) = (block for block in blocks if "def make" in block)
    path = tmp_path / "program.py"
    path.write_text(program)
    (sent,) = inspect_path(f"{path}:make").collectives
    assert (sent.kind, sent.operand_bytes, sent.wire_bytes) == ("all_reduce", 32, 56)


def test_every_lesson_is_listed() -> None:
    linked = set(re.findall(r"\(lessons/([0-9][0-9])_", README))
    assert linked == WRITTEN


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
    numbers = [row[0] for row in rows("docs/design.md") if re.fullmatch(r"[0-9][0-9]", row[0])]
    assert numbers == [f"{number:02}" for number in range(1, 25)]


def test_every_command_is_documented() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    assert set(group.commands) == set(re.findall(r"^\| `jaxpar (\w+)", README, re.MULTILINE))
