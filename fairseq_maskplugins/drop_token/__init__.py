"""DropToken: train a RoBERTa on rows from which a share of the tokens is removed."""
