"""Many experiments: a grid of them, each run in a process of its own, and how they scale."""
