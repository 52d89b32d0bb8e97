"""Tests; a package, so that test modules of the same name can stand in different folders."""
