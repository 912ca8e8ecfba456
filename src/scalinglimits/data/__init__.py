"""Real data sets: built in, or read from the user's own files.

Every loader returns plain NumPy arrays and names the file and the fault if one is wrong.
"""

from scalinglimits.data.batches import minibatches
from scalinglimits.data.digits import load_digits
from scalinglimits.data.features import load_features
from scalinglimits.data.idx import load_idx
from scalinglimits.data.text import Text, load_text

__all__ = ["Text", "load_digits", "load_features", "load_idx", "load_text", "minibatches"]
