"""What is compared kernel by kernel. A module is imported only in its contestant's process."""
