"""Fill ``<mask>`` in sentences."""
