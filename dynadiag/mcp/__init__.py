"""A Model Context Protocol server: each command is a tool, and recordings are resources. Needs the extra ``mcp``."""
