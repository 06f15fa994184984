"""The list of a sitting: which exercises it shows, where its cursor is, and what keys do there.

It draws nothing: `listing` makes its lines, and `terminal_fit` shows those around the cursor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from jaxpar.course.catalog import Exercise, Lesson, lesson
from jaxpar.course.keyboard import DOWN, END, ENTER, ERASE, ESCAPE, HOME, PAGE_DOWN, PAGE_UP, UP
from jaxpar.course.progress import Standing

Wish = Literal["open", "reset", "leave"]
Filter = Literal["all", "todo", "wrong", "solved"]
FILTERS: dict[Filter, tuple[str, ...]] = {
    "all": ("todo", "changed", "fail", "pass"),
    "todo": ("todo", "changed"),
    "wrong": ("fail",),
    "solved": ("pass",),
}
WISHES: dict[str, Wish] = {ENTER: "open", "r": "reset", "q": "leave", ESCAPE: "leave"}


@dataclass
class ExerciseList:
    """The state of the list.

    Attributes:
        rows: every exercise and how it stands.
        place: the exercise under the cursor.
        filter: which exercises are shown.
        search: a text that the names or titles of all that are shown contain.
        searching: whether what is typed now goes into `search`.
        page: how many lines there is room for; whoever draws the list sets this.
    """

    rows: list[Standing]
    place: Exercise
    filter: Filter = "all"
    search: str = ""
    searching: bool = False
    page: int = field(default=10)

    @property
    def shown(self) -> list[Standing]:
        """The exercises that the filter and the search leave."""
        return [row for row in self.rows if self._matches(row)]

    @property
    def lines(self) -> list[Lesson | Standing]:
        """The exercises that are shown, those of each lesson after the lesson."""
        found: list[Lesson | Standing] = []
        for row in self.shown:
            heading = lesson(row.exercise.lesson)
            found += [row] if heading in found else [heading, row]
        return found

    @property
    def selected(self) -> Standing | None:
        """The exercise under the cursor, if it is shown."""
        return next((row for row in self.shown if row.exercise == self.place), None)

    def type(self, key: str) -> Wish | None:
        """Takes one key; returns what is to be done with the selected exercise, if anything."""
        if self.searching:
            self._type_search(key)
            return None
        steps = {
            "j": 1, DOWN: 1, "k": -1, UP: -1, PAGE_DOWN: self.page, " ": self.page,
            PAGE_UP: -self.page, HOME: -len(self.rows), "g": -len(self.rows),
            END: len(self.rows), "G": len(self.rows),
        }  # fmt: skip
        if key in steps:
            self._move(steps[key])
        elif key == "/":
            self.searching, self.search = True, ""
        for name in FILTERS:
            if key == name[0]:
                self.filter, self.search = name, ""
                self._move(0)
        wish = WISHES.get(key)
        return wish if self.selected or wish == "leave" else None

    def _type_search(self, key: str) -> None:
        if key in (ENTER, ESCAPE):
            self.searching = False
            self.search = self.search if key == ENTER else ""
        elif key in ERASE:
            self.search = self.search[:-1]
        elif key.isprintable():
            self.search += key.lower()
        self._move(0)

    def _move(self, by: int) -> None:
        """Moves the cursor by as many exercises, or to the nearest of those that are shown."""
        shown = [row.exercise for row in self.shown]
        if not shown:
            return
        order = [row.exercise for row in self.rows]
        here = order.index(self.place)
        nearest = min(range(len(shown)), key=lambda place: abs(order.index(shown[place]) - here))
        self.place = shown[min(max(nearest + by, 0), len(shown) - 1)]

    def _matches(self, row: Standing) -> bool:
        words = f"{row.exercise.id} {row.exercise.title}".lower()
        return row.status in FILTERS[self.filter] and self.search in words
