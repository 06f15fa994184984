"""From a learner's file to a verdict: worker, evidence, reader, judge, verdict.

The worker is a process that runs the learner's Python and exports one program for each case; what
it sends is the evidence. The reader is a process that never runs the learner's Python: it checks
the programs, counts what they send, compiles them, and runs them. The judge draws the inputs after
all evidence has arrived, compares the results with the contract, and returns a verdict, which the
writers print. Information flows in this direction only.
"""
