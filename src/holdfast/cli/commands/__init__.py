"""The commands, one noun to a file."""
