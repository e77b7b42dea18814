"""Fitting the kernel models to measured rows. Needs numpy and lightgbm (extra `calibrate`); `predict` needs neither."""
