"""One module per family of checks; a package scan registers them."""
