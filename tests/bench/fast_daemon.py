"""The daemon with almost no pause between two cycles, so that thousands of cycles take a minute.

Only for measures that count cycles; never for one that measures time.
"""

from __future__ import annotations

import sys

from nodeagent import cycle
from nodeagent.cli import main

GAP_SECONDS = 0.002

if __name__ == "__main__":
    cycle.GAP_SECONDS = GAP_SECONDS
    sys.exit(main())
