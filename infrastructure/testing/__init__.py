"""What tests of settled, and of what is built on it, run against: a real server, real faults."""
