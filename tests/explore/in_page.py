"""Asks the forms as a page does: `python -S -I in_page.py ZIP`, with questions as JSON lines.

What answers them is jaxpar.explore.schedule, jaxpar.explore.memory, jaxpar.explore.layout and
jaxpar.explore.collectives; in place of numpy stand jaxpar.explore.browser.numpy and its modules
jaxpar.explore.browser.numpy.arrays, jaxpar.explore.browser.numpy.random and
jaxpar.explore.browser.numpy.typing.

A question is {"form": [name, fields]}, {"verdicts": exercise} or {"draws": seed}.
"""

import json
import sys
from pathlib import Path
from typing import Any

SEED = 20


def reply(question: dict[str, Any]) -> Any:
    """The answer to a form, the verdicts on all functions of an exercise, or drawn numbers."""
    if "form" in question:
        from jaxpar.explore import answer

        name, form = question["form"]
        return answer(name, form)
    if "draws" in question:
        import numpy as np

        return draws(np.random.default_rng(question["draws"]))
    return verdicts(question["verdicts"])


def verdicts(exercise: str) -> dict[str, Any]:
    """What is found of each function, by its name, except how long it took."""
    from jaxpar.contracts.base import load
    from jaxpar.explore.verdict import contract_of, judged
    from jaxpar.grading.submission import Submission

    where = contract_of(exercise)
    contract = load(where)
    functions = {mistake.name: mistake.function for mistake in contract.mistakes}
    found = {}
    for name, function in ({"reference": contract.reference} | functions).items():
        text = Submission(Path("answer.py"), b"# a function")
        verdict = judged(where, text, lambda _, it=function: it, SEED).to_dict()
        del verdict["seconds"]
        found[name] = verdict
    return json.loads(json.dumps(found))


def draws(rng: Any) -> list[Any]:
    """What a generator of numpy draws, in each way in which contracts use one."""
    return [
        int(rng.integers(10)),
        rng.integers(5, 2**40, 3).tolist(),
        float(rng.random()),
        rng.permutation(7).tolist(),
        rng.permutation(list("abcdef")).tolist(),
        rng.integers((2, 1, 1), (65, 129, 9)).tolist(),
        rng.integers(1, (5, 30), (4, 2)).tolist(),
        float(rng.uniform(0.1, 3)),
        [float(x) for x in rng.uniform((1.5, 0.05), (3, 0.1))],
        float(rng.choice((0.375, 0.5, 1))),
        rng.integers(0, 2**32, 2).tolist(),
        int(rng.integers(1, 2**63 - 1)),
    ]


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(reply(json.loads(line))), flush=True)
    absent = {"jax", "rich", "jaxtyping", "scipy"} & sys.modules.keys()
    sys.exit(f"these were imported: {absent}" if absent else 0)
