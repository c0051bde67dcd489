"""Turn events into typed records: what each event of the trace means. `digest.Digest` is the way in."""
