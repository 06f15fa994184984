"""A ramp of the batch: its size doubles from a first one to that of the recipe."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ramp:
    """The batch of each step.

    Every size is compiled once, so there are few.

    Attributes:
        sizes: the examples in a batch, each twice the one before; the last is that of the recipe.
        each: how many steps every size but the last has.

    Source: Brown et al. 2020 (GPT-3), appendix B, who raise the batch linearly
    """

    sizes: tuple[int, ...]
    each: int

    def __str__(self) -> str:
        """The sizes in words."""
        first = ", then ".join(map(str, self.sizes[:-1]))
        return f"{first} examples for {self.each} steps each, then {self.sizes[-1]}"

    def sizes_from(self, taken: int) -> tuple[int, ...]:
        """The sizes of the batches after so many steps, each once."""
        return self.sizes[min(taken // self.each, len(self.sizes) - 1) :]

    def examples(self, steps: int) -> int:
        """The examples in the first `steps` batches."""
        small = self.sizes[:-1]
        ramped = sum(min(max(0, steps - n * self.each), self.each) * b for n, b in enumerate(small))
        return ramped + max(0, steps - len(small) * self.each) * self.sizes[-1]


def parse_ramp(text: str, *, batch: int, parts: int, rounds: int) -> Ramp:
    """The ramp that `--batch-ramp FIRST:STEPS` asks for.

    Args:
        text: the first size, and after how many steps the batch is full.
        batch: the full size.
        parts: what every size is a multiple of: all microbatches of all devices.
        rounds: how many steps devices take between two averages.

    Raises:
        ValueError: it is none, or the sizes or the steps cannot be split so.
    """
    given = f"train: --batch-ramp {text}"
    words = text.split(":")
    if len(words) != 2 or not all(word.isdecimal() and int(word) for word in words):
        raise ValueError(f"{given}: use FIRST:STEPS, two numbers above 0, as in 4:300")
    first, steps = map(int, words)
    sizes = [first]
    while sizes[-1] < batch:
        sizes.append(2 * sizes[-1])
    possible = [batch >> n for n in range(1, batch.bit_length()) if not batch % (parts << n)]
    if first not in possible:
        use = f"use {' or '.join(map(str, possible))}" if possible else "use a larger --batch"
        raise ValueError(
            f"{given} with --batch {batch}: the batch doubles until it is {batch}, and each has "
            f"equal parts for {parts} microbatches over all devices; {use}"
        )
    multiple = (len(sizes) - 1) * rounds
    if steps % multiple:
        why = f", each a multiple of --sync-every {rounds}" if rounds > 1 else ""
        near = [n * multiple for n in (steps // multiple, steps // multiple + 1) if n]
        raise ValueError(
            f"{given}: {len(sizes) - 1} sizes below --batch {batch} have equally many steps{why}; "
            f"use {first}:{f' or {first}:'.join(map(str, near))}"
        )
    return Ramp(tuple(sizes), steps // (len(sizes) - 1))
