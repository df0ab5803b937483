"""Taking a history out of a store, and into an empty one as a copy that cannot dispatch."""
