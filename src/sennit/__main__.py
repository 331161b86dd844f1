"""`python -m sennit` is `sennit`."""

from sennit.cli import main

if __name__ == "__main__":
    main()
