"""Commands as processes of their own, some at once, for tools that train several models."""
