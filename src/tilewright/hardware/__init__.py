"""GPUs: the catalogue (data with sources) and live queries, which agree on one record."""
