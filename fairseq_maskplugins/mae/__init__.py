"""MAE for text: a deep encoder on visible tokens, a shallow decoder on the full row."""
