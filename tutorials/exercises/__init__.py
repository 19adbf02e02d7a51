"""Checks of the exercises: `from exercises import lesson1`, then `lesson1.scale_rows(Answer)`.

A check answers with a `Verdict`: right, or what is wrong. It never raises for a wrong answer.
"""
