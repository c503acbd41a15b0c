"""The engine's eager path in Triton's interpreter; collected only where the process was started for it."""

import os

if os.environ.get("TRITON_INTERPRET") != "1":
    collect_ignore_glob = ["test_*.py"]
