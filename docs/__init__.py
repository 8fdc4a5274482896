"""The documentation's sources; `make docs` builds it."""
