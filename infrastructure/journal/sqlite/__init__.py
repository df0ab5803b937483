"""The journal in one SQLite file: for one host, with as many processes as it likes."""
