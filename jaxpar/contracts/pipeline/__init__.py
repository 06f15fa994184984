"""The exercises of the lesson on pipeline: what is right and wrong of each."""
