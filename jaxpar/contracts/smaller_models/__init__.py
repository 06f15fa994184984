"""The exercises of the lesson on smaller models: what is right and wrong of each."""
