"""Tests of the sample traces and of the scripts that make them."""
