"""Prints kernels: the template tree, the Jinja environment and ``render``."""

from marlin_gen.emit.render import Rendered, render
from marlin_gen.emit.templates import Templates

__all__ = ["Rendered", "Templates", "render"]
