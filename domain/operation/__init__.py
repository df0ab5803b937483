"""The operation: one business action with one external effect, from intent to settled."""
