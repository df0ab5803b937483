"""What is read: views folded from the log. They never act and never decide."""
