"""Search: which kernel configs are legal for a problem, ranked by what the hardware can use (`fit --search`)."""
