"""``python -m penstock.cli`` does the same as ``penstock``."""

from penstock.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
