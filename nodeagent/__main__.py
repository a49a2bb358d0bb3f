"""`python -m nodeagent` is the command `nodeagent`."""

from __future__ import annotations

import sys

from nodeagent.cli import main

sys.exit(main())
