"""The exercises of the lesson on ring and tree: what is right and wrong of each."""
