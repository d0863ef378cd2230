"""The tokenizers of tests/text and the tiny models of tests/parity serve here too."""

import sys
from pathlib import Path

for folder in ("text", "parity"):
    sys.path.append(str(Path(__file__).parents[1] / folder))
