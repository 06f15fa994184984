"""The exercises of the lesson on mixture of experts: what is right and wrong of each."""
