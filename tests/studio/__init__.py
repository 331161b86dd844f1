"""Tests of the studio in a browser: a package, so that one browser serves all its modules."""
