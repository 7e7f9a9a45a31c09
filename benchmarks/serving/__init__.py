"""The server, the clients and the loads of `benchmarks.http`."""
