"""From fairseq checkpoints to folders that ``transformers`` loads, and back: plain conversion, no fairseq here."""
