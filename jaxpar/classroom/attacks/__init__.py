"""What strangers may hand in to gain points, to look where they must not, or to stop the grader.

Data, which `jaxpar doctor --grading` and the tests run through the real chain of processes.
"""
