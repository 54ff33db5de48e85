"""The one place that holds the version; it is part of every cache key."""

__version__ = "0.1.0"
