"""The data path of an engine: commands and reports are decided, staged, written and acknowledged here."""
