"""`python -m webrt.cli` is `webrt`."""

import sys

from webrt.cli.main import main

sys.exit(main())
