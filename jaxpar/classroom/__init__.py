"""Grades of a class: hand-ins read once, judged in a sandbox, and kept in a journal."""
