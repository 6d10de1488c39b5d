"""`python -m tfscale` is the command `tfscale`."""

import sys

from tfscale.cli import main

if __name__ == "__main__":
    sys.exit(main())
