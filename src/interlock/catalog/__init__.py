"""The catalog: which database lives where, and with which settings. It does not know what is stored there."""
