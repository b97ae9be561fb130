"""What knows the insides of Cog's own server."""
