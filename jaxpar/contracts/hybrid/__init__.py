"""The exercises of the lesson on hybrid parallelism: what is right and wrong of each."""
