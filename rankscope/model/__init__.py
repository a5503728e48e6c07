"""What the stages hand to each other: frames, records, registries. No logic of a stage."""
