"""A snapshot of a host and its server. `collector` is the part that also runs where nothing can be installed."""
