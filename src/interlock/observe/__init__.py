"""What an engine does, in foreign formats: Prometheus, OpenTelemetry, logs in JSON. Loaded by name when asked for."""
