"""What is appended together, what the journal answers, and the port to it."""
