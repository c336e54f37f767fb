"""The answer workflow: retrieve, grade, answer, check, correct."""
