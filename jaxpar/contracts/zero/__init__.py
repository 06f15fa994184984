"""The exercises of the lesson on zero: what is right and wrong of each."""
