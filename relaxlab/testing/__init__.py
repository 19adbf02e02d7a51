"""Oracles and generators that the tests and benchmarks compare against."""
