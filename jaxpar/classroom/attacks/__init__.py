"""What strangers may hand in to gain points, to look where they must not, or to stop the grader.

The attacks are data, which `jaxpar doctor --grading` and the tests run through the real chain of
processes.
"""
