"""Collectives one by one: what each costs by kind, size and dtype, and a line through it."""
