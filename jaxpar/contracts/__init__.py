"""What a right answer is: one declaration per exercise, one file per topic."""
