"""`cog-triton plan`: how many runners a load needs, by simulation.

curve (what `cog-triton perf --json` measured of one runner) -> fleet (a number of them behind a load
balancer, as discrete events) -> sizing (the fewest that meet the objectives), growth (how fast there can be
more) -> command.
"""
