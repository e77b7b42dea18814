"""Times and limits of GEMMs and MoE layers from bytes, operations and the hardware's rates."""
