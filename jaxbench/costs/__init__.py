"""What a collective costs: formulas by algorithm, and fits to measurements."""
