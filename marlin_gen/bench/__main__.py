"""``python -m marlin_gen.bench``."""

from marlin_gen.bench.speed import main

main()
