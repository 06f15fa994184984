"""The exercises of the lesson on costs: what is right and wrong of each."""
