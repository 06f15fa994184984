"""Runs the command line by `python -m jaxpar.cli`."""

from jaxpar.cli import main

main()
