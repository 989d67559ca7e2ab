"""How processes start: the environment before, the backend and its devices after."""
