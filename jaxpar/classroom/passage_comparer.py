"""The process that compares answers by their passages; it gets texts over a pipe and runs none.

`similarity` starts it in a sandbox as `python -m jaxpar.classroom.passage_comparer`. A text that
breaks the parser ends this process and nothing else.

Source: Schleimer, Wilkerson and Aiken, "Winnowing: Local Algorithms for Document Fingerprinting",
2003; all passages of these short files are kept, so that nothing need be winnowed
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from pygments.lexers.python import PythonLexer
from pygments.token import Token

from jaxpar.grading.channel import receive, send_json
from jaxpar.grading.lifetime import begin_child, limit_process

LENGTH = 6  # words of a passage
MOST_WORDS = 20_000  # of one text; what comes later is not compared
LEAST_ALIKE = 12  # passages; fewer are chance
LEAST_FRACTION = 0.6  # of the shorter answer
MOST_PAIRS = 200
# A passage that more answers have than this number and this fraction of all is common usage.
USUAL, USUAL_FRACTION = 10, 0.25

Passages = set[int]


def words(text: str) -> list[str]:
    """Returns the words of a program without layout, comments and docstrings.

    Each text and each chosen name becomes the same word; a name after a dot is a library's, and
    stays.
    """
    found: list[str] = []
    for kind, word in itertools.islice(PythonLexer().get_tokens(text), MOST_WORDS):
        if kind in Token.Comment or kind in Token.Text or kind in Token.Literal.String.Doc:
            continue
        if kind in Token.Literal.String:
            if found[-1:] != ["text"]:
                found.append("text")
        elif kind in Token.Name and kind is not Token.Name.Builtin and found[-1:] != ["."]:
            found.append("name")
        else:
            found.append(word)
    return found


def passages(text: str) -> Passages:
    """Returns every run of `LENGTH` words, each as one number."""
    found = words(text)
    return {hash(tuple(found[i : i + LENGTH])) for i in range(len(found) - LENGTH + 1)}


def canonical(given: Passages, ours: Passages, answers: Sequence[Passages]) -> list[int]:
    """Returns the positions of the answers that hold nothing but what ours does.

    Where an exercise has one obvious form, whoever finds it writes the same.
    """
    known = given | ours
    return [i for i, answer in enumerate(answers) if answer - given and answer <= known]


def compare(given: Passages, ours: Passages, answers: Sequence[Passages]) -> list[list]:
    """Finds the pairs of answers that are alike, most alike first.

    Answers that are canonical are in no pair.

    Args:
        given: the passages of what everybody was given, which do not count.
        ours: the passages of our own answer.
        answers: the passages of each answer that was handed in.

    Returns:
        For each pair the positions of both, where -1 is our own answer; what percentage of the
        shorter one is in the other; and how many passages that is.
    """
    have = Counter(passage for answer in answers for passage in answer)
    most = max(USUAL, USUAL_FRACTION * len(answers))
    known = given | {passage for passage, count in have.items() if count > most}
    same_as_ours = set(canonical(given, ours, answers))
    left = [ours - known] + [
        set() if i in same_as_ours else answer - known for i, answer in enumerate(answers)
    ]
    return heapq.nlargest(MOST_PAIRS, _alike(left), key=lambda pair: pair[2:])


def _alike(answers: Sequence[Passages]) -> Iterator[list]:
    for (i, one), (j, other) in itertools.combinations(enumerate(answers, -1), 2):
        shorter = min(len(one), len(other))
        if shorter >= LEAST_ALIKE:
            same = len(one & other)
            if same >= max(LEAST_ALIKE, LEAST_FRACTION * shorter):
                yield [i, j, 100 * same // shorter, same]


def main() -> None:
    """Reads what was given, our answer and theirs, one after the other, and replies with pairs."""
    requests, replies = begin_child()
    send_json(replies, {"ready": True})
    job = receive(requests)
    if job is None:
        return
    limit_process(job["memory_bytes"], job["cpu_seconds"])
    read = []
    for place in range(job["texts"]):
        receive(requests)  # the number of the text, which follows
        text: bytes = receive(requests)
        read.append(passages(text.decode(errors="replace")))
        send_json(replies, {"read": place})
    given, ours, *answers = read
    send_json(
        replies,
        {
            "pairs": compare(given, ours, answers),
            "canonical": canonical(given, ours, answers),
        },
    )


if __name__ == "__main__":
    main()
