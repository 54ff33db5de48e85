"""The command line: one verb is one call into another room."""
