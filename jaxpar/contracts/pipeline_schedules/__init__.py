"""The exercises of the lesson on pipeline schedules: what is right and wrong of each."""
