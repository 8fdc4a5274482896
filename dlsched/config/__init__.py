"""YAML in; typed values, or every problem at once, out."""
