"""Show what the other packages find: as text, JSON, Markdown, SARIF, DOT, SVG and HTML. It adds no finding."""
