"""The only place that runs a compiler: real types in, sizes, registers and spills out."""
