"""The exercises of the lesson on training for real: what is right and wrong of each."""
