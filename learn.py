"""Installs jaxpar into .venv, runs lesson 01 the first time, and opens the exercise at hand.

Type `python learn.py`, or `py learn.py` on Windows, again and again; `make learn` does the same. It
needs Python 3.11 or newer, nothing else, and the network the first time only.
"""

import importlib.util
import os
import platform
import signal
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PROGRAMS = VENV / ("Scripts" if os.name == "nt" else "bin")
ENDING = ".exe" if os.name == "nt" else ""
PYTHON, PIP = PROGRAMS / f"python{ENDING}", PROGRAMS / f"pip{ENDING}"
INSTALLED = VENV / ".learn"  # as new as pyproject.toml where nothing is to be installed
FIRST_LESSON = ROOT / ".jaxpar" / "lessons" / "01"


def main():
    """Returns the exit code of what ended last."""
    os.chdir(ROOT)
    why_not = what_is_missing()
    if why_not:
        print(f"learn.py: {why_not}", file=sys.stderr)
        return 2
    for step in (install, lesson_01):
        ended = step()
        if ended is not None:
            return ended
    return run(jaxpar())


def what_is_missing():
    """Why jaxpar cannot be installed here, and what to do; an empty text if it can be."""
    here = f"Python {platform.python_version()}"
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python may run this file
        return f"this is {here}; jaxpar needs 3.11 or newer: run learn.py with that one"
    if sys.platform == "darwin" and platform.machine() == "x86_64":
        return f"{here} is for Intel processors, for which JAX is made no more; take one for arm64"
    if not PIP.exists() and importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        return f"{here} lacks the venv module; run: sudo apt install {package}"
    return ""


def install():
    """Installs jaxpar where pyproject.toml has changed since; returns an exit code if it fails."""
    settings = ROOT / "pyproject.toml"
    if INSTALLED.exists() and INSTALLED.stat().st_mtime >= settings.stat().st_mtime:
        return None
    print("Installing jaxpar into .venv: once, a minute or two.", flush=True)
    if not PIP.exists():  # it comes last when an environment is made
        venv.create(VENV, clear=True, with_pip=True)
    quietly = ["--quiet", "--disable-pip-version-check"]
    code = run([PYTHON, "-m", "pip", "install", *quietly, "--editable", "."])
    if code:
        return code
    run([PYTHON, "-m", "compileall", "-q", "jaxpar"])  # the judge's children write no bytecode
    INSTALLED.touch()
    return None


def lesson_01():
    """Runs the first lesson once; returns an exit code if the reader does not go on."""
    if FIRST_LESSON.exists():
        return None
    shown = PROGRAMS.relative_to(ROOT) / "jaxpar"
    activate = PROGRAMS.relative_to(ROOT) / "activate"
    how = str(activate) if os.name == "nt" else f"source {activate}"
    print(f"Next time type {shown}; or {how} first, and then jaxpar.", flush=True)
    code = run(jaxpar("lesson", "01"))
    if code or not FIRST_LESSON.exists():
        return code
    if sys.stdin.isatty() and sys.stdout.isatty():
        try:
            input("Enter does so now. ")
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
    return None


def jaxpar(*words):
    """The command line of jaxpar in the environment."""
    return [PROGRAMS / f"jaxpar{ENDING}", *words]


def run(command):
    """Runs a command in this terminal, to which Ctrl-C belongs, and returns its exit code."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(list(map(str, command)), check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    sys.exit(main())
