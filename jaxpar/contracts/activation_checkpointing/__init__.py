"""The exercises of the lesson on activation checkpointing: what is right and wrong of each."""
