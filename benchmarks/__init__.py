"""relaxlab and its peers side by side; see README.md in this folder."""
