"""The plain model behind the calls of search: for GPUs, and the definition of what is computed."""
