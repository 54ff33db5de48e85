"""Prints kernels: the template tree, the Jinja environment and ``render``."""

from marlin_gen.emit.render import Rendered, check_legal, render
from marlin_gen.emit.templates import Templates

__all__ = ["Rendered", "Templates", "check_legal", "render"]
