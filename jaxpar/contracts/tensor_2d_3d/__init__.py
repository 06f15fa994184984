"""The exercises of the lesson on tensor 2d 3d: what is right and wrong of each."""
