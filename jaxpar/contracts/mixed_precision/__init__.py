"""The exercises of the lesson on mixed precision: what is right and wrong of each."""
