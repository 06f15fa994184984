"""The exercises of the lesson on collectives: what is right and wrong of each."""
