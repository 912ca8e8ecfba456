"""Real data sets: built in, or read from the user's own files.

Every loader returns plain NumPy arrays and names the file and the fault if one is wrong.
"""

from scalinglimits.data.digits import load_digits
from scalinglimits.data.features import load_features

__all__ = ["load_digits", "load_features"]
