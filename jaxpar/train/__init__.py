"""A training run: text, steps, the loop around them, and several processes."""
