"""Tuning: which tile of a fused-MoE kernel is fastest on this GPU, searched in minutes and safe to kill.

`space` lists and prunes the configs, `order` ranks them by a model, `search` halves and refines, `work` is the process
that measures one trial, `trials` keeps every trial in the store, `export` writes the files that vLLM and SGLang read.
Importing this package imports neither torch nor Triton.
"""
