"""The claims of arXiv 2609.00817, each asked of the simulator."""
