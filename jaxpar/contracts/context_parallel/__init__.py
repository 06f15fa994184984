"""The exercises of the lesson on context parallel: what is right and wrong of each."""
