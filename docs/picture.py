"""Record the picture at the top of README.md: watch mode on a right result that sends too much.

`python docs/picture.py` makes a course in a temporary folder, writes the answer into it, starts
`jaxpar` in a terminal of its own, types a prediction, and draws the last screen into
docs/picture.svg. The terminal is a pseudoterminal, so this runs on Linux and macOS only.
"""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).with_suffix(".svg")
STUB = "exercises/02_collectives/mean_over_devices.py"
ANSWER = "    return lax.all_gather(x, axis).mean(0)\n"
TYPED = (  # the pattern that is waited for, and what is typed then
    ("q quit", "l"),
    ("/ find", "mean_over_devices\n"),
    ("Predict before .* q quit", "2 * 7/8 * 4800\n"),
    ("minimum .* q quit", "q"),
)
ROWS, COLUMNS, SECONDS = 40, 96, 120
# A terminal is cleared before each screen.
CLEARED = "\x1b[2J\x1b[H"


def screens(folder: Path) -> list[str]:
    """Return the screen before each thing that is typed into `jaxpar`, run in `folder`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    jaxpar = subprocess.Popen(
        ["jaxpar"], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    shown, output, deadline = [], "", time.monotonic() + SECONDS
    for awaited, typed in TYPED:
        while not re.search(awaited, output.rpartition(CLEARED)[2], re.DOTALL):
            if time.monotonic() > deadline:
                jaxpar.kill()
                raise SystemExit(f"picture: {awaited!r} did not come; the terminal shows\n{output}")
            if select.select([ours], [], [], 1)[0]:
                output += os.read(ours, 1 << 16).decode().replace("\r", "")
        shown.append(output.rpartition(CLEARED)[2])
        os.write(ours, typed.encode())
    jaxpar.wait(SECONDS)
    return shown


def draw(screen: str) -> str:
    """Return a screen as SVG that loads nothing: the font is the reader's own."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(screen.rstrip()))
    svg = console.export_svg(title="jaxpar", unique_id="jaxpar")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    """Record and draw."""
    here = os.path.dirname(sys.executable)
    os.environ |= {"PATH": f"{here}:{os.environ['PATH']}", "TERM": "xterm-256color"}
    with TemporaryDirectory() as folder:
        subprocess.run(["jaxpar", "init", folder], check=True)
        stub = Path(folder, STUB)
        text = stub.read_text("utf-8")
        stub.write_text(re.sub(r"    raise NotImplementedError.*\n", ANSWER, text), "utf-8")
        PICTURE.write_text(draw(screens(Path(folder))[-1]), "utf-8")


if __name__ == "__main__":
    main()
