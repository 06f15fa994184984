"""The exercises of the lesson on ZeRO: what is right and wrong of each."""
