"""Notebooks: exercises that are written in cells, and lessons as notebooks."""
