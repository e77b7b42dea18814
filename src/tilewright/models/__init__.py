"""Models: their shapes, how a checkpoint quantises them, and what that takes in bytes."""
