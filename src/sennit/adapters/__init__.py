"""Adapters that put the histories of other frameworks on the store, one module each."""
