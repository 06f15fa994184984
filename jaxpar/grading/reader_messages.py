"""The messages between the judge and its reader; see `messages` for how they travel.

The judge sends one `ReaderJob`, then requests; the reader replies to each. Arrays and programs
follow their message as frames of raw bytes.
"""

# The decoder reads the types of the fields, so this module has no postponed annotations.

from dataclasses import dataclass
from typing import Literal

from jaxpar.contracts.case import Case
from jaxpar.grading.messages import Output, ProgramKey
from jaxpar.inspector.report import Collective, Memory, RepeatedSum

# The judge to the reader.


@dataclass(frozen=True)
class ReaderJob:
    """The contract that the reader is to load, and its limits.

    Attributes:
        memory_bytes: the address space that the process may have.
        cpu_seconds: the processor time that it may take.
        where: the module of the contract, and `@` with a number where it is a variant.
        drawn: the drawn cases, which come after those of the contract.
        devices: how many devices are simulated.
    """

    memory_bytes: int
    cpu_seconds: int
    where: str
    drawn: tuple[Case, ...]
    devices: int


@dataclass(frozen=True)
class MistakeName:
    """Names a mistake of the contract as the author of a program."""

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
    """Asks for the outputs of a program that was read; `inputs` says how many arrays follow."""

    run: ProgramKey
    author: Author
    inputs: int


ReaderRequest = ReadProgram | ExportOurs | PartitionProgram | RunProgram


def blobs_after(request: ReaderRequest) -> int:
    """Returns how many frames of raw bytes follow a request."""
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
        collectives: the collectives of the program as it is written.
        flops: the flops of its matrix products; None where a loop has an unknown length.
        products: how many these are; None where a loop has an unknown length.
        product_dtypes: the dtypes that these products multiply.
        memory: what the compiled program holds; None where it was not measured.
        unexplained: the collectives that the compiler added, in words.
        repeated: the sums over devices that hold the same value already.
        outputs: the outputs of the program.
    """

    collectives: tuple[Collective, ...]
    flops: int | None
    products: int | None
    product_dtypes: tuple[str, ...]
    memory: Memory | None
    unexplained: tuple[str, ...]
    repeated: tuple[RepeatedSum, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class RunResults:
    """Says how many results of a program follow."""

    results: int


@dataclass(frozen=True)
class ProgramRefused:
    """Why the reader does not read or run a program."""

    refused: str


ReaderReply = Started | Facts | RunResults | ProgramRefused
