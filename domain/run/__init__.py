"""A run: one execution of an agent, with what it has asked, spent, waits for, and until when."""
