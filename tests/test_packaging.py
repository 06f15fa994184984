"""The wheel is the whole course."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import jaxpar

pytestmark = pytest.mark.always

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (built,) = folder.glob("*.whl")
    return built


def test_it_carries_library_and_lessons_and_no_answers(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {str(path.relative_to(ROOT)) for path in (ROOT / "jaxpar").rglob("*.py")}
    lessons = {str(path.relative_to(ROOT)) for path in (ROOT / "lessons").rglob("*.py")}
    assert lessons
    expected |= {f"jaxpar/_course/{name}" for name in (*lessons, "exercises/conftest.py")}
    assert {name for name in packed if name.endswith(".py")} == expected
    found = (ROOT / "jaxpar").rglob("templates/**/*")
    templates = {str(path.relative_to(ROOT)) for path in found if path.is_file()}
    assert templates
    assert templates <= packed


def test_its_version_is_the_library_s(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    assert re.search(r"^Version: (.*)$", metadata, re.MULTILINE)[1] == jaxpar.__version__


def test_its_name_is_the_one_that_the_commands_page_installs(wheel: Path) -> None:
    assert f"install {wheel.name}\n" in (ROOT / "docs/commands.md").read_text(encoding="utf-8")
