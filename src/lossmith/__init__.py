"""lossmith: the metric a model is judged by becomes the loss it is trained with."""

from importlib.metadata import version as _version

__version__ = _version("lossmith")
