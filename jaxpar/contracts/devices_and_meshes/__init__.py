"""The exercises of the lesson on devices and meshes: what is right and wrong of each."""
