"""What the pages show of a terminal is what the commands print."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpar.inspector import inspect_path

pytestmark = pytest.mark.always

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STUB = ROOT / "exercises/02_collectives/mean_over_devices.py"
SECONDS = re.compile(r"[0-9.]+ s\b")


def verdict_on(body: str, folder: Path) -> str:
    """Return what `jaxpar check` prints of the README's exercise with this line as its answer."""
    answer = folder / "answer.py"
    source = re.sub(
        r"^    (?:raise|return) .*\Z", f"    {body}\n", STUB.read_text(), flags=re.M | re.S
    )
    answer.write_text(source)
    command = [sys.executable, "-m", "jaxpar.cli", "check", "mean_over_devices", "--seed", "1"]
    return subprocess.run(
        [*command, "--file", answer], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ).stdout


def test_the_session_of_the_readme(tmp_path: Path) -> None:
    wrong, right = re.findall(r"^```python\n(return .*)\n```$", README, re.MULTILINE)
    (shown,) = re.findall(r"^```\n(mean_over_devices: .*?)^```$", README, re.MULTILINE | re.DOTALL)
    printed = verdict_on(right, tmp_path).partition("\nNext")[0]
    assert SECONDS.sub("", printed) == SECONDS.sub("", shown)

    picture = re.sub(r"<[^>]*>", "", (ROOT / "docs/picture.svg").read_text(encoding="utf-8"))
    picture = html.unescape(picture).replace("\xa0", " ")
    failure = verdict_on(wrong, tmp_path).split("\n\n")[1:3]
    assert failure[0].startswith("communication: ")
    for line in "\n".join(failure).splitlines():
        assert line in picture


def test_the_program_to_inspect(tmp_path: Path) -> None:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?def make.*?)```", text, re.DOTALL)
    path = tmp_path / "program.py"
    path.write_text(program)
    (sent,) = inspect_path(f"{path}:make").collectives
    assert (sent.kind, sent.operand_bytes, sent.wire_bytes) == ("all_reduce", 32, 56)
