"""`interlock demo`: thousands of orders through the order machine, in memory, observed and verified."""
