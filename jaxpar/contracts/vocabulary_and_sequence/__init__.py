"""The exercises of the lesson on vocabulary and sequence: what is right and wrong of each."""
