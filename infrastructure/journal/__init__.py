"""The journal behind its port: two databases, their migrations, and the commit queue."""
