"""SQL: numbered migrations as files, statements as named constants."""
