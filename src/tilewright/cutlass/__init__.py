"""Pure arithmetic: kernel config -> budget -> verdict. Mirrors how CUTLASS lays its types out."""
