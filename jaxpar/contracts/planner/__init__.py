"""The exercises of the lesson on planner: what is right and wrong of each."""
