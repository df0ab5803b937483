"""`settled bench`: what an operation costs, beside what the database and other libraries cost."""
