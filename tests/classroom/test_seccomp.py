"""The numbers of the filtered system calls, held against the headers of the kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jaxpar.classroom.sandbox import seccomp

HEADERS = ("x86_64-linux-gnu/asm/unistd_64.h", "asm-generic/unistd.h")
NUMBER = re.compile(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)")
NEWER_THAN_HEADERS = ("fchmodat2", "setxattrat", "removexattrat", "file_setattr")


@pytest.mark.parametrize(("column", "header"), list(enumerate(HEADERS)), ids=("x86_64", "aarch64"))
def test_numbers_are_those_of_the_kernel(column: int, header: str) -> None:
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip(f"there is no {path}: install linux-libc-dev")
    numbers = {name: int(number) for name, number in NUMBER.findall(path.read_text())}
    ours = seccomp.DENIED | seccomp.OWN | {
        "clone": seccomp.CLONE, "clone3": (seccomp.CLONE3,) * 2, "fcntl": seccomp.FCNTL
    }  # fmt: skip
    wrong = {
        name: pair[column]
        for name, pair in ours.items()
        if numbers.get(name) != pair[column]
        and not (name in NEWER_THAN_HEADERS and name not in numbers)
    }
    assert not wrong
