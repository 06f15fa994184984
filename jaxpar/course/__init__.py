"""The course: what it consists of, how far a learner is, and the loop around one exercise."""
