"""The CUTLASS headers on a machine: finding them, reading them, and an index of what they can do."""
