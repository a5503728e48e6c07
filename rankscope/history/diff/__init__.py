"""Two runs of one job: what changed beyond noise."""
