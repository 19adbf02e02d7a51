"""Running batched programs: recording instances, and computing what was recorded in batches."""
