"""Checks of the exercises of labs."""
