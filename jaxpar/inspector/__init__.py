"""What a JAX program sends, stores and computes."""
