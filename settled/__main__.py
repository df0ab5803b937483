"""Run the command line: `python -m settled`."""

from settled.cli import main

if __name__ == "__main__":
    main()
