"""YAML in; typed values, or all problems, out."""
