"""Embedding correction: pretrained token embeddings become what the layers saw on average."""
