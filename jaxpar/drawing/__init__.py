"""Pictures of schedules, layouts, memory and curves: as lines of a terminal, and as SVG. No JAX."""
