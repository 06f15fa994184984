"""The messages between the judge and its reader; see `messages` for how they travel."""

# The decoder reads the types of the fields, so this module has no postponed annotations.

from dataclasses import dataclass
from typing import Literal

from jaxpar.grading.messages import Output, ProgramKey
from jaxpar.inspector.report import Collective, Memory

# The judge to the reader.


@dataclass(frozen=True)
class ReaderJob:
    """The contract by which the reader reads, and what it may use."""

    memory_bytes: int
    cpu_seconds: int
    where: str
    hidden: bool
    devices: int


@dataclass(frozen=True)
class MistakeName:
    """A mistake of the contract, as the author of a program."""

    mistake: str


OurAuthor = Literal["reference"] | MistakeName
Author = Literal["answer"] | OurAuthor
"""Whose program: the learner's answer, or our own reference or mistake."""


@dataclass(frozen=True)
class ReadProgram:
    """Asks what is in a program of the answer; its bytes follow."""

    read: ProgramKey
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class ExportOurs:
    """Asks what is in a program that the reader exports from the reference or from a mistake."""

    export: ProgramKey
    author: OurAuthor


@dataclass(frozen=True)
class PartitionProgram:
    """Asks what is in the contract's program for a case, split as these partition specs say."""

    partition: int
    specs: tuple[tuple[str | tuple[str, ...] | None, ...], ...]


@dataclass(frozen=True)
class RunProgram:
    """Asks for the outputs of a program that was read; as many inputs follow as are announced."""

    run: ProgramKey
    author: Author
    inputs: int


ReaderRequest = ReadProgram | ExportOurs | PartitionProgram | RunProgram


def blobs_after(request: ReaderRequest) -> int:
    """How many frames of raw bytes follow a request."""
    if isinstance(request, ReadProgram):
        return 1
    return request.inputs if isinstance(request, RunProgram) else 0


# The reader to the judge.


@dataclass(frozen=True)
class Started:
    """The reader has loaded its contract."""

    started: Literal[True] = True


@dataclass(frozen=True)
class Facts:
    """What the reader found in one program.

    Attributes:
        collectives: as the program has them.
        flops: of its matrix products; None where a loop has an unknown length.
        product_dtypes: the dtypes that these products multiply.
        memory: what the compiled program holds, where it was measured.
        unexplained: in words, the collectives that the compiler added.
        outputs: the outputs of the program.
    """

    collectives: tuple[Collective, ...]
    flops: int | None
    product_dtypes: tuple[str, ...]
    memory: Memory | None
    unexplained: tuple[str, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class RunResults:
    """How many results follow."""

    results: int


@dataclass(frozen=True)
class ProgramRefused:
    """Why the reader does not read or run a program."""

    refused: str


ReaderReply = Started | Facts | RunResults | ProgramRefused
