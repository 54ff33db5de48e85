"""Looks at compiled kernels: resources, PTX, SASS, lints, reports, differences."""
