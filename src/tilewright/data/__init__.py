"""Packaged data files. Every figure in them names its source."""
