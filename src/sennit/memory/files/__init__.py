"""The virtual file system of `viking://` URIs."""
