"""The course: what it consists of, how far a learner is, and the loop around one exercise.

The catalog is the table of lessons and exercises, and a folder holds one learner's copy of them.
`check` has a file judged and remembers the verdict. In watch mode, `watch` passes events (saves,
keys, ends of judgements) to a `session`, whose state `screens` turns into text; one run of watch
mode is called a sitting.
"""
