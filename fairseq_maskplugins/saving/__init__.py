"""Checkpoints that are there whole or not at all, and one line where a run can't go on."""
