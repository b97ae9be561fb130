"""What the figures of serving are compared with: the least that a server can do, and the least Cog can."""
