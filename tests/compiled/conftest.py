"""What is compiled here is kept apart: code that another process compiled for other instructions may not run."""

import os
import tempfile

KEPT = tempfile.TemporaryDirectory(prefix="regard-compiled-")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", KEPT.name)
