"""The exercises of the lesson on fsdp: what is right and wrong of each."""
