"""What acts: the worker and the process managers that it runs. They speak to ports alone."""
