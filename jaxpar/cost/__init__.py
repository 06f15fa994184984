"""What parallel programs send, hold and take, as formulas; nothing here imports JAX."""
