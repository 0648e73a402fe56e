"""``python -m lossmith`` is the command ``lossmith``."""

from lossmith.cli import main

if __name__ == "__main__":
    main()
