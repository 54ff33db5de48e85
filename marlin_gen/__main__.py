"""``python -m marlin_gen``."""

from marlin_gen.cli.main import main

if __name__ == "__main__":
    main()
