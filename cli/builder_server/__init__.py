"""The builder's HTTP server: Cog's API on the runner's front, one build at a time."""
