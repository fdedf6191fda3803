"""Gradient variance of masked-LM training, split into what comes from data and what from masks. See the README."""
