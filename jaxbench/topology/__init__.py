"""Where ranks are: nodes, switches and groups of a system, and what a group of ranks crosses."""
