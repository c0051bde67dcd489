"""One case for a maintainer: what the searches found, as one document and as an issue that can be posted."""
