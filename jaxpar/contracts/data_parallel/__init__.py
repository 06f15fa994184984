"""The exercises of the lesson on data parallel: what is right and wrong of each."""
