"""The journal in a schema of a PostgreSQL database: for any number of hosts."""
