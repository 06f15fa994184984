"""From a learner's file to a verdict: worker, evidence, reader, judge, verdict."""
