"""Tests of dlsched.review."""
