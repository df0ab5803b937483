"""The acceptance battery: real workers, killed on the user's own database. See `runner`."""
