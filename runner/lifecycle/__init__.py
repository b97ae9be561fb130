"""How a runner starts, is supervised, and ends."""
