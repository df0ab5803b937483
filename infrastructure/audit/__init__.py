"""Looking for what was changed in a stored history, and anchoring it outside its store."""
