"""What touches the world: the journal, HTTP, the simulator, the testing kit."""
