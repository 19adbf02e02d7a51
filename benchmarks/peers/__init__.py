"""The systems compared, relaxlab among them. Each module is imported only in its own process."""
