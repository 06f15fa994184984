"""Answers to page_tables: right ones by other routes, and wrong ones."""

from __future__ import annotations

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(page_size, pages):
    if page_size < 1 or pages < 1:
        raise ValueError("sizes")


@right
def from_the_last_page_down(events, *, page_size, pages):
    """Takes the largest free number, and counts anew whenever it needs to know."""
    _check(page_size, pages)
    tables, lengths = {}, {}

    def count(page):
        return sum(page in table for table in tables.values())

    def take(besides=()):
        found = [p for p in range(pages) if not count(p) and p not in besides]
        if not found:
            raise ValueError("no page is free")
        return found[-1]

    for event, name, *rest in events:
        if (name in tables) == (event == "add") or (event == "fork" and rest[0] in tables):
            raise ValueError("name")
        if event == "add":
            if rest[0] < 1:
                raise ValueError("tokens")
            own = []
            for _ in range((rest[0] + page_size - 1) // page_size):
                own.append(take(own))
            tables[name], lengths[name] = own, rest[0]
        elif event == "fork":
            tables[rest[0]], lengths[rest[0]] = [*tables[name]], lengths[name]
        elif event == "free":
            del tables[name], lengths[name]
        else:
            place = lengths[name] % page_size
            if not place:
                tables[name].append(take())
            elif count(tables[name][-1]) > 1:
                tables[name][-1] = take()
            lengths[name] += 1
    return tables, [count(page) for page in range(pages)]


@right
def of_sets_of_names(events, *, page_size, pages):
    """Each page knows the names of those that have it, and each request its number of tokens."""
    _check(page_size, pages)
    owners, requests = [set() for _ in range(pages)], {}

    def take(name):
        for page, names in enumerate(owners):
            if not names:
                names.add(name)
                return page
        raise ValueError("full")

    for event in events:
        kind, name = event[0], event[1]
        new = {"add": name, "fork": event[-1]}.get(kind)
        if new in requests or (kind != "add" and name not in requests):
            raise ValueError("name")
        if kind == "add":
            if event[2] <= 0:
                raise ValueError("tokens")
            requests[name] = [event[2], [take(name) for _ in range(0, event[2], page_size)]]
        elif kind == "fork":
            requests[new] = [requests[name][0], requests[name][1][:]]
            for page in requests[new][1]:
                owners[page].add(new)
        elif kind == "append":
            tokens, table = requests[name]
            if tokens % page_size == 0:
                table.append(take(name))
            elif owners[table[-1]] != {name}:
                old, table[-1] = table[-1], take(name)
                owners[old].remove(name)
            requests[name][0] = tokens + 1
        else:
            for page in requests.pop(name)[1]:
                owners[page].remove(name)
    return {name: table for name, (_, table) in requests.items()}, [len(names) for names in owners]


@wrong("values")
def counts_of_used_pages_only(events, *, page_size, pages):
    tables, counts = of_sets_of_names(events, page_size=page_size, pages=pages)
    return tables, [count for count in counts if count]


@wrong("values")
def pages_counted_from_one(events, *, page_size, pages):
    tables, counts = of_sets_of_names(events, page_size=page_size, pages=pages)
    return {name: [page + 1 for page in table] for name, table in tables.items()}, counts


@wrong("values")
def counts_as_booleans(events, *, page_size, pages):
    tables, counts = of_sets_of_names(events, page_size=page_size, pages=pages)
    return tables, [count > 0 for count in counts]


@wrong("values")
def as_many_pages_as_needed(events, *, page_size, pages):
    """Grows in place of an error."""
    tables, counts = of_sets_of_names(events, page_size=page_size, pages=10 * max(pages, 1))
    return tables, counts[:pages]


@wrong("values")
def lists_of_pages_in_order(events, *, page_size, pages):
    tables, counts = from_the_last_page_down(events, page_size=page_size, pages=pages)
    return {name: sorted(table) for name, table in tables.items()}, counts


@wrong("values")
def full_one_page_early(events, *, page_size, pages):
    """Keeps a page free, for a copy."""
    tables, counts = of_sets_of_names(events, page_size=page_size, pages=pages - 1)
    return tables, [*counts, 0]
