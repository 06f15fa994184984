"""What an optimizer's state in 8 bits takes, and how its numbers are cut into blocks."""

import math
from collections.abc import Sequence

BLOCK = 256  # as bitsandbytes has it
FEWEST = 8  # numbers in a block, without which its largest would take more than it saves
PARTS = 8  # into which devices may split the last dim of a leaf
SMALL = 4096  # leaves of fewer numbers stay in float32, as bitsandbytes has it
CODE_BYTES, LARGEST_BYTES = 2, 4 + 4  # of both moments of Adam: for a number, and for a block


def block_of(shape: Sequence[int]) -> int:
    """How many numbers of a leaf's last dim are a block; 1: its state stays in float32.

    It is the largest number up to 256 that divides an eighth of the dim, or, of a dim that is no
    multiple of 8, a quarter, a half or the whole. So devices can split the dim into as many parts,
    and no block straddles two of them; which mesh it is does not matter.

    Source: Dettmers et al. 2022 (8-bit Optimizers), section 2.1; the parts are ours
    """
    if math.prod(shape) < SMALL:
        return 1
    part = shape[-1] // math.gcd(shape[-1], PARTS)
    block = next(n for n in range(min(BLOCK, part), 0, -1) if part % n == 0)
    return block if block >= FEWEST else 1
