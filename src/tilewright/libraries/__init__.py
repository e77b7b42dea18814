"""Readers of kernel libraries as installed: which tactics they compile, what their dispatch decides."""
