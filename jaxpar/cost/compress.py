"""What compressed all-reduces send.

Sources: Alistarh et al. 2017 (QSGD); Seide et al. 2014 (1-bit SGD); Stich, Cordonnier and Jaggi
2018 (Sparsified SGD with Memory); Vogels, Karimireddy and Jaggi 2019 (PowerSGD).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxpar.checks import check_one_of, check_positive
from jaxpar.cost.communication import Kind
from jaxpar.cost.terms import Term, make_term

FLOAT_BYTES = 4  # a value, a scale, or the place of a value
BLOCK = 256  # numbers that share a scale, wherever nobody chooses
CODE_BITS = {"int8": 8, "int4": 4, "sign": 1}
SCHEMES = ("fp32", *CODE_BITS, "topk", "powersgd")


def compressed_bytes(
    rows: int, columns: int, n: int, *, scheme: str, block: int, k: int, rank: int
) -> float:
    """The bytes that each of n devices sends to average a matrix of gradients.

    The schemes are:

        fp32              an all-reduce of float32 numbers
        int8, int4, sign  codes of 8, 4 or 1 bits, with a float32 scale for each block of `block`
                          numbers, in an all-to-all and then an all-gather of n equal parts
        topk              an all-gather of the k largest numbers of each device, each with its
                          place, an int32
        powersgd          an all-reduce of two float32 factors of rank `rank`

    An all-reduce, an all-to-all and an all-gather send as many bytes as in a ring (lesson 03).
    `block`, `k` and `rank` matter only for the schemes that name them. No size is rounded or
    padded.

    Source: Vogels, Karimireddy and Jaggi 2019 (PowerSGD), algorithm 1

    Raises:
        ValueError: the scheme is unknown, or a number is not above 0.
    """
    numbers = {"rows": rows, "columns": columns, "n": n, "block": block, "k": k, "rank": rank}
    check_one_of("compressed_bytes", "scheme", scheme, SCHEMES)
    check_positive("compressed_bytes", numbers)
    if scheme == "topk":
        return (n - 1) * 2.0 * FLOAT_BYTES * k
    if scheme == "powersgd":
        whole = FLOAT_BYTES * rank * (rows + columns)
    elif scheme == "fp32":
        whole = FLOAT_BYTES * rows * columns
    else:
        whole = (CODE_BITS[scheme] / 8 + FLOAT_BYTES / block) * rows * columns
    return 2 * (n - 1) / n * whole


@dataclass(frozen=True)
class Compressed:
    """Numbers that n devices average together, compressed.

    Attributes:
        scheme: "int8", "int4", "sign", "topk" or "powersgd", as in `compressed_bytes`.
        numbers: how many each device has; with "topk", how many of them it sends; with "powersgd",
            how many the factors have.
        block: how many numbers share a scale; with "topk" and "powersgd" it does not matter.
        n: the number of devices.
    """

    scheme: str
    numbers: int
    block: int
    n: int

    @property
    def operands(self) -> Mapping[Kind, Term]:
        """The bytes that a device gives to each of the collectives."""
        if self.scheme == "topk":
            return {"all_gather": make_term("values, places", "2*4*k", {"k": self.numbers})}
        if self.scheme == "powersgd":
            return {"all_reduce": make_term("factors", "4*k", {"k": self.numbers})}
        bits = CODE_BITS[self.scheme]
        numbers = {"numbers": self.numbers, "bits": bits, "block": self.block, "n": self.n}
        codes = "numbers*(bits/8 + 4/block)"
        return {
            "all_to_all": make_term("codes and scales", codes, numbers),
            "all_gather": make_term("codes and scales of the means", f"{codes}/n", numbers),
        }
