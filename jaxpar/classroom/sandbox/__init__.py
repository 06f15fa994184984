"""What keeps a stranger's program from everything but its own pipe."""
