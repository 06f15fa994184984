"""What a run of weeks needs beside its parallel techniques, one thing in each file.

Learning rates, the position in the data, checkpoints that are known to be whole, and steps that are
not taken. All but `guarded` is plain Python, equal on every process.
"""
