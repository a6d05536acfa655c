"""Document translation on the server: intake, bounded batches through the engine, results as they come.

Imported by `services.v1` and `wiring`.
"""
