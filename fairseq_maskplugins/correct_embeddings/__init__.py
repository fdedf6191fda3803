"""Embedding correction: move pretrained token embeddings to what the layers saw on average. See the README beside this."""
