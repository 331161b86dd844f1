"""HTTP foundations: authentication, limits, routing and errors, for every API of the server."""
