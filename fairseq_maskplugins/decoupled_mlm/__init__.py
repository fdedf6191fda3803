"""Masked-language-model pretraining with separate corruption and prediction rates. See the README beside this file."""
