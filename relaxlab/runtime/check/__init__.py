"""`check`: each form of a program compared with the one before it."""
