"""Adapters that store the histories of other agent frameworks in Sennit, one module each."""
