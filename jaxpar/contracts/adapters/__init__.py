"""The exercises of the lesson on adapters: what is right and wrong of each."""
