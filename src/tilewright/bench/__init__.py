"""Measuring on the GPU at hand: correct first, then fast. Needs the extra `bench` (torch, triton, nvidia-ml-py).

`problem` what is measured, `backends` who runs it, `timing` how long it takes, `environment` on what, `run` all of it.
"""
