"""Entry point of `python -m sennit`."""

from sennit.cli import main

if __name__ == "__main__":
    main()
