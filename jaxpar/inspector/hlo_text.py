"""Parses HLO text into computations, their instructions, and the source line of each.

XLA gives HLO as text only. `hlo` counts the collectives in what is parsed here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

Shape = tuple[str, tuple[int, ...]]  # HLO's element type, sizes

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{")
_ASSIGNMENT = re.compile(r"\s*(ROOT )?%?([\w.\-]+) = ")
_PARENTHESIS = re.compile(r"[()]")
_BRACKET_OR_COMMA = re.compile(r"[()\[\]{},]")
_OPCODE = re.compile(r"\s*([\w\-]+)(?=\()")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        name: Its name, unique in its computation.
        opcode: Its opcode in HLO's spelling: "all-reduce", "while", ...
        shapes: The shapes of its results; a tuple is flattened.
        operands: The names of its operands, without "%", where "name#3" is element 3 of a tuple;
            for a constant, its value.
        attributes: The text after the operands, with quoted strings blanked out, because they
            contain names that users have chosen.
        backend_config: The JSON that XLA's backend has attached.
    """

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    backend_config: str

    def attribute(self, name: str, pattern: str) -> str:
        """Returns what `pattern` matches right after "name=", or "" if there is no such text."""
        match = re.search(rf"\b{name}=({pattern})", self.attributes)
        return match[1] if match else ""

    def called(self, name: str) -> tuple[str, ...]:
        """Returns the computations that an attribute names."""
        names = self.attribute(name, r"\{[^}]*\}|%?[\w.\-]+")
        return tuple(re.findall(r"[\w.\-]+", names))


@dataclass(frozen=True)
class Computation:
    """A computation: its instructions by name, in order, and the one that is its result."""

    instructions: Mapping[str, Instruction]
    root: Instruction


@dataclass(frozen=True)
class HloText:
    """A module: its computations, the name of its entry, and "file:line" of each stack frame."""

    computations: Mapping[str, Computation]
    entry: str
    frames: Mapping[str, str]


def parse_hlo(text: str) -> HloText:
    """Reads a module as `compiled.as_text()` and XLA's dumps print it.

    Raises:
        ValueError: A line has an unknown form.
    """
    tables: dict[str, dict[str, str]] = {}
    computations: dict[str, Computation] = {}
    entry, lines = "", iter(text.splitlines())
    table: dict[str, str] = {}
    for line in lines:
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = tables.setdefault(line, {})
        elif header := _HEADER.fullmatch(line):
            computations[header[2]] = _computation(lines)
            entry = header[2] if header[1] else entry
        elif row := re.fullmatch(r"(\d+) (.*)", line):
            table[row[1]] = row[2]
        elif line and not line.startswith("HloModule "):
            raise _unknown(line)
    if entry not in computations:
        raise ValueError("inspector: HLO text without an ENTRY computation; give a whole module")
    return HloText(computations, entry, _frames(tables))


def shapes_of(name: str, computation: Computation) -> tuple[Shape, ...]:
    """Returns the shapes of an operand: an instruction, or "name#3" for an element of a tuple."""
    owner, _, index = name.partition("#")
    shapes = computation.instructions[owner].shapes
    return (shapes[int(index)],) if index else shapes


def _computation(lines: Iterable[str]) -> Computation:
    instructions: dict[str, Instruction] = {}
    root = None
    for line in lines:
        if line.startswith("}"):
            break
        instruction, is_root = _instruction(line)
        instructions[instruction.name] = instruction
        root = instruction if is_root else root
    if root is None:
        raise ValueError("inspector: HLO computation without ROOT; give a whole module")
    return Computation(instructions, root)


def _instruction(line: str) -> tuple[Instruction, bool]:
    blank = _STRING.sub(lambda match: '"' + "_" * (len(match[0]) - 2) + '"', line)
    blank = _COMMENT.sub(lambda match: " " * len(match[0]), blank)
    assignment = _ASSIGNMENT.match(blank)
    if not assignment:
        raise _unknown(line)
    after_type = _end_of_type(blank, assignment.end())
    opcode = _OPCODE.match(blank, after_type)
    if not opcode:
        raise _unknown(line)
    after_operands = _end_of_parentheses(blank, opcode.end())
    config = blank.find("backend_config=", after_operands)
    return Instruction(
        name=assignment[2],
        opcode=opcode[1],
        shapes=_shapes(blank[assignment.end() : after_type]),
        operands=_operands(blank[opcode.end() + 1 : after_operands - 1]),
        attributes=blank[after_operands:],
        backend_config=line[config:] if config >= 0 else "",
    ), bool(assignment[1])


def _end_of_type(text: str, start: int) -> int:
    if text[start] == "(":
        return _end_of_parentheses(text, start)
    end = text.find(" ", start)
    return len(text) if end < 0 else end


def _end_of_parentheses(text: str, start: int) -> int:
    depth = 0
    for found in _PARENTHESIS.finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.end()
    raise _unknown(text)


def _operands(text: str) -> tuple[str, ...]:
    """Splits a list of operands at the commas outside brackets, and drops their types."""
    parts, depth, start = [], 0, 0
    for found in _BRACKET_OR_COMMA.finditer(text):
        if found[0] == "," and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
        elif found[0] != ",":
            depth += 1 if found[0] in "([{" else -1
    parts.append(text[start:])
    return tuple(part.split()[-1].lstrip("%") for part in parts if part.strip())


@lru_cache(maxsize=4096)
def _shapes(text: str) -> tuple[Shape, ...]:
    """The shapes of the arrays in a type, which many instructions share."""
    return tuple(
        (dtype, tuple(int(size) for size in sizes.split(",") if size))
        for dtype, sizes in _ARRAY.findall(text)
    )


def _frames(tables: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    files = {key: name.strip('"') for key, name in tables.get("FileNames", {}).items()}
    locations = {}
    for key, row in tables.get("FileLocations", {}).items():
        if found := re.search(r"file_name_id=(\d+) .*\bline=(\d+)", row):
            locations[key] = f"{files[found[1]]}:{found[2]}"
    frames = {}
    for key, row in tables.get("StackFrames", {}).items():
        if found := re.search(r"file_location_id=(\d+)", row):
            frames[key] = locations[found[1]]
    return frames


def _unknown(line: str) -> ValueError:
    return ValueError(f"inspector: HLO line {line.strip()[:200]!r} has a form that is not known")
