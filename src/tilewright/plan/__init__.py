"""Findings in, ranked plan out. One rule a file, found through a registry."""
