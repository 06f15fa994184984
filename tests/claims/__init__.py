"""Where the numbers of real clusters in the lessons come from: a formula or a source for each.

`lesson_10.py` holds those of lesson 10, and so on; `test_claims.py` finds a number without one.
"""
