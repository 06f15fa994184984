"""Continuous batching without any model: which tokens each step computes, as rows of numbers.

This is for teaching. The engine asks the scheduler itself, step by step.
"""

from collections.abc import Sequence

from jaxpar.batching.pages import PagePool
from jaxpar.batching.scheduler import Generation, Scheduler
from jaxpar.checks import check_positive


def continuous_schedule(
    requests: Sequence[tuple[int, int, int]], *, slots: int, budget: int
) -> list[list[tuple[int, int]]]:
    """Which tokens each step computes until all requests have ended.

    Each request is `(arrival, prompt, output)`. It is there from step `arrival` on, has `prompt`
    tokens, and generates `output` more. Requests are called by their places in the list, from 0 on,
    and of two that arrive in the same step the first in the list comes first.

    A step computes at most `budget` tokens, and requests in at most `slots` slots. It gives them
    out in this order:

    1. one token to each request in a slot that has only one left to compute, which is the newest
       that it has generated, or the last of its prompt;
    2. to each other request in a slot, as many tokens of its prompt as are left of the budget;
    3. while budget and a slot are left, to the first request that waits, a slot, and as many tokens
       of its prompt as are left of the budget.

    Within each of the three, the request that arrived first comes first. The step that computes the
    last token of a prompt generates the first token, and each further token takes a step. A request
    that has generated all its tokens does not compute the last one, and its slot is free in the
    next step. A step in which nothing is to be done is an empty row.

    Returns:
        For each step a list of pairs `(request, tokens)`, in the order in which they were given.

    Source: Yu et al. 2022 (Orca), section 3.1 (a new choice in each step); Agrawal et al. 2024
        (Sarathi-Serve), section 4.1 (chunks of prompts, behind the decodes)

    Raises:
        ValueError: there are no slots, `budget` is below `slots`, an arrival is negative, or a
            request has no prompt or generates nothing.
    """
    check_positive("continuous_schedule", {"slots": slots, "budget": budget})
    for arrival, prompt, output in requests:
        check_positive("continuous_schedule", {"prompt": prompt, "output": output})
        if arrival < 0:
            raise ValueError(
                f"continuous_schedule: a request arrives in step {arrival}; use 0 or more"
            )
    # A page for each request, so that pages never run out.
    longest = max((prompt + output for _, prompt, output in requests), default=1)
    pool = PagePool(max(1, len(requests)), longest)
    scheduler = Scheduler(pool, slots=slots, chunk=budget, budget=budget)
    coming = sorted(range(len(requests)), key=lambda i: requests[i][0])
    rows: list[list[tuple[int, int]]] = []
    while coming or scheduler.waiting or scheduler.running:
        while coming and requests[coming[0]][0] <= len(rows):
            i = coming.pop(0)
            _, prompt, output = requests[i]
            scheduler.add(Generation(str(i), [i] * prompt, prompt + output))
        works = scheduler.next()
        rows.append([(int(work.generation.name), work.count) for work in works])
        for work in works:
            one = work.generation
            scheduler.record(work, [int(one.name)] * work.ends_known)
            if len(one.tokens) == one.limit:
                scheduler.finish(one)
    return rows
