"""The exercises of the lesson on inference: what is right and wrong of each."""
