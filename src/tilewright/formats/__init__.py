"""Number formats: bits, scale-vector lengths and codecs; nothing else."""
