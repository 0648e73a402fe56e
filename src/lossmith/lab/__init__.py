"""Data sets, models and recipes to learn losses on and to compare them with; needs ``pip install 'lossmith[lab]'``."""
