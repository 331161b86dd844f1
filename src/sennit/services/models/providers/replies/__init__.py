"""Reading the replies of providers, with one module per API."""
