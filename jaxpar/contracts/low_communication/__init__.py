"""The exercises of the lesson on low communication: what is right and wrong of each."""
