"""How a runner starts, is watched over, and ends."""
