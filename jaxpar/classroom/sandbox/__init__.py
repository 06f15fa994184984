"""The sandbox: confines a stranger's program, so that it reaches nothing but its own pipes."""
