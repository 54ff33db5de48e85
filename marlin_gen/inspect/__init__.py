"""Looks at compiled kernels: resources, PTX, SASS, lints, reports, differences. See docs/inspect.md."""

from marlin_gen.inspect.diff import KernelDiff, diff_kernels
from marlin_gen.inspect.diff_trees import TreeDiff, diff_trees
from marlin_gen.inspect.lints import RULES, Lint
from marlin_gen.inspect.report import Report, inspect_kernel
from marlin_gen.inspect.tools import embedded_archs
from marlin_gen.inspect.view_html import to_html
from marlin_gen.inspect.view_text import print_report, to_markdown, to_text

__all__ = [
    "RULES", "KernelDiff", "Lint", "Report", "TreeDiff",
    "diff_kernels", "diff_trees", "embedded_archs", "inspect_kernel", "print_report", "to_html", "to_markdown", "to_text",
]  # fmt: skip
