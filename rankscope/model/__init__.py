"""The data that stages pass to each other: frames, records, registries; no logic of a stage."""
