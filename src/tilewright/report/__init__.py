"""How results look: JSON for programs, Rich on a terminal, plain and stable text in a pipe."""
