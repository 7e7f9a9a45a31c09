"""`interlock demo`: thousands of orders through an outage and the kill of their worker, observed and verified."""
