"""The systems compared kernel by kernel. Each module is imported only in its own process."""
