"""Seeing masks: rows with their tokens told apart, measured rates, unit and run lengths. See the README beside this
file."""
