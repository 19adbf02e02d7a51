"""What is compared. A module here is imported only in the process of its own contestant."""
