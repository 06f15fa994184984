"""Answers to continuous_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(requests, slots, budget):
    if slots < 1 or budget < slots or any(a < 0 or min(p, o) < 1 for a, p, o in requests):
        raise ValueError("no such requests")


@right
def from_what_is_left(requests, *, slots, budget):
    """Counts down what is left of each request, in one list in the order of arrival."""
    _check(requests, slots, budget)
    order = sorted(range(len(requests)), key=lambda i: requests[i][0])
    prompt = {i: requests[i][1] for i in order}
    output = {i: requests[i][2] for i in order}
    inside, steps = set(), []
    while any(output.values()):
        left, row = budget, []
        there = [i for i in order if output[i] and requests[i][0] <= len(steps)]
        decodes = [i for i in there if i in inside and prompt[i] <= 1]
        chunks = [i for i in there if i in inside and prompt[i] > 1]
        for i in decodes:
            row.append((i, 1))
            left -= 1
        for i in chunks + [i for i in there if i not in inside]:
            if not left or (i not in inside and len(inside) == slots):
                break
            inside.add(i)
            row.append((i, min(prompt[i], left)))
            left -= row[-1][1]
        for i, count in row:
            prompt[i] = max(0, prompt[i] - count)
            output[i] -= prompt[i] == 0
        inside = {i for i in inside if output[i]}
        steps.append(row)
    return steps


@right
def by_events_in_a_queue(requests, *, slots, budget):
    """A queue of those that wait, and a list of [number, computed] in slots."""
    _check(requests, slots, budget)
    queue = [i for i, _ in sorted(enumerate(requests), key=lambda each: each[1][0])]
    running, steps = [], []
    while queue or running:
        left, row = budget, []
        for group in (True, False):
            for state in running:
                size = requests[state[0]][1]
                if (state[1] >= size - 1) is group and left:
                    row.append((state, 1 if group else min(size - state[1], left)))
                    left -= row[-1][1]
        while queue and left and len(running) < slots and requests[queue[0]][0] <= len(steps):
            running.append([queue.pop(0), 0])
            row.append((running[-1], min(requests[running[-1][0]][1], left)))
            left -= row[-1][1]
        steps.append([(state[0], count) for state, count in row])
        for state, count in row:
            state[1] += count
        running = [s for s in running if s[1] < requests[s[0]][1] + requests[s[0]][2] - 1]
    return steps


@wrong("values")
def rows_sorted_by_request(requests, *, slots, budget):
    rows = by_events_in_a_queue(requests, slots=slots, budget=budget)
    return [sorted(row) for row in rows]


@wrong("values")
def rows_as_dicts(requests, *, slots, budget):
    return [dict(row) for row in by_events_in_a_queue(requests, slots=slots, budget=budget)]


@wrong("values")
def pads_to_all_slots(requests, *, slots, budget):
    """As a batch of fixed size has it."""
    rows = by_events_in_a_queue(requests, slots=slots, budget=budget)
    return [row + [(-1, 0)] * (slots - len(row)) for row in rows]


@wrong("values")
def a_chunk_for_the_oldest_only(requests, *, slots, budget):
    """Of the prompts in slots, only the first goes on."""
    _check(requests, slots, budget)
    queue = [i for i, _ in sorted(enumerate(requests), key=lambda each: each[1][0])]
    running, steps = [], []
    while queue or running:
        left, row = budget, []
        for state in running:
            if state[1] >= requests[state[0]][1] - 1:
                row.append((state, 1))
                left -= 1
        going = [s for s in running if s[1] < requests[s[0]][1] - 1]
        if not going and queue and len(running) < slots and requests[queue[0]][0] <= len(steps):
            running.append([queue.pop(0), 0])
            going = running[-1:]
        if going and left:
            state = going[0]
            row.append((state, min(requests[state[0]][1] - state[1], left)))
        steps.append([(state[0], count) for state, count in row])
        for state, count in row:
            state[1] += count
        running = [s for s in running if s[1] < requests[s[0]][1] + requests[s[0]][2] - 1]
    return steps


@wrong("values")
def skips_who_does_not_fit(requests, *, slots, budget):
    """A prompt that fits into the rest of the budget overtakes one that does not."""
    _check(requests, slots, budget)
    order = sorted(range(len(requests)), key=lambda i: (requests[i][0], requests[i][1] > budget, i))
    moved = [requests[i] for i in order]
    rows = by_events_in_a_queue(moved, slots=slots, budget=budget)
    return [[(order[i], count) for i, count in row] for row in rows]
