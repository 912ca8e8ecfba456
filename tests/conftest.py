"""Settings and helpers that all tests share."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

# One thread a test process: the tests run on all cores already, and results must not depend on it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

collect_ignore = [] if find_spec("transformers") else ["library_models.py"]

sys.path.insert(0, str(Path(__file__).parent))  # library_models
