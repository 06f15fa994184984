"""The exercises of the lesson on tensor parallel: what is right and wrong of each."""
